package admin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestClient(t *testing.T) {
	d := &fake{status: sample(), result: ReloadResult{Error: "poise.yaml:1:1: no"}}
	path, _ := startSocket(t, d)
	c := NewClient(path)
	st, err := c.Status(t.Context(), false)
	if err != nil || st.Services[0].Name != "postgres" {
		t.Error(st, err)
	}
	res, err := c.Reload(t.Context())
	if err != nil || res.OK || res.Error != "poise.yaml:1:1: no" {
		t.Error(res, err) // refused is an answer, not a failure to ask
	}
	if err := errors.Join(c.Ready(t.Context()), c.Live(t.Context())); err != nil {
		t.Error(err)
	}
	d.ready, d.live = errors.New("draining"), errors.New("loop 1 hangs")
	if err := c.Ready(t.Context()); err == nil || err.Error() != "draining" {
		t.Error(err)
	}
	if err := c.Live(t.Context()); err == nil || err.Error() != "loop 1 hangs" {
		t.Error(err)
	}
}

// ticking is a daemon whose counters grow by 100 each time they are read.
type ticking struct {
	fake
	total uint64
}

func (d *ticking) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += 100
	return Status{Services: []Service{{Name: "s", Total: d.total}}}
}

func TestClientWaitsForRates(t *testing.T) {
	path, _ := startSocket(t, &ticking{})
	st, err := NewClient(path).Status(t.Context(), true)
	if err != nil || st.RatesOver < 1 || st.Services[0].Rates == nil {
		t.Fatal(st, err)
	}
	if got := st.Services[0].Rates.Connections * st.RatesOver; got < 99.9 || got > 100.1 {
		t.Errorf("%v connections between the looks", got)
	}
}

func TestClientErrors(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	stale(t, gone)
	garbage := serveOnce(t, filepath.Join(dir, "garbage"), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{")
	})
	other := serveOnce(t, filepath.Join(dir, "other"), func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "<html>")
	})
	old := serveOnce(t, filepath.Join(dir, "old"), http.NotFound)
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "poise is not running: there is no socket " + filepath.Join(dir, "none"),
		gone:                       "poise is not running: nobody listens on " + gone,
		garbage:                    "cannot understand what " + garbage + " answers",
		other:                      "does not know GET /v1/status; are poise and the daemon of the same version?",
		old:                        "does not know GET /v1/status; are poise and the daemon of the same version?",
	} {
		_, err := NewClient(path).Status(t.Context(), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	denied := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
	err := NewClient(gone).explain(denied, 0)
	if !strings.HasPrefix(err.Error(), "permission denied on "+gone+": become root") {
		t.Error(err)
	}
}

func serveOnce(t *testing.T, path string, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return path
}

// A daemon that hangs fails the probe in time for keepalived.
func TestProbeOfHangingDaemon(t *testing.T) {
	d := &fake{hang: make(chan struct{})}
	path, _ := startSocket(t, d)
	defer close(d.hang)
	begin := time.Now()
	err := NewClient(path).Ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
	if took := time.Since(begin); took < probeTimeout { // and it does return
		t.Errorf("took %v", took)
	}
}
