package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
)

func pointer(n int) *int { return &n }

// operatedDaemon is a daemon of two backends, a of weight 100 and b of weight 50.
func operatedDaemon(t *testing.T, state string) (d *Daemon, log *safeBuffer, reload func(backends string)) {
	t.Helper()
	dir, listen, http := t.TempDir(), reserve(t), reserve(t)
	file := func(backends string) *config.File {
		return parse(t, fmt.Sprintf(`
admin: {socket: %s/s, http: %q, state: %q}
services:
  web: {listen: [%q], pool: web}
pools:
  web: {check: {type: none}, backends: %s}
`, dir, http, state, listen, backends))
	}
	const both = `[{name: a, address: "127.0.0.1:1", weight: 100}, {name: b, address: "127.0.0.1:2", weight: 50}]`
	log = &safeBuffer{}
	d, err := start(Options{File: file(both), Stdout: io.Discard, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d, log, func(backends string) {
		t.Helper()
		if _, err := d.apply(file(strings.ReplaceAll(backends, "BOTH", both))); err != nil {
			t.Fatal(err)
		}
	}
}

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func must(t *testing.T) func(admin.BackendState, error) admin.BackendState {
	return func(s admin.BackendState, err error) admin.BackendState {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestOperator(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	d, log, reload := operatedDaemon(t, path)
	look := func(name, want string) {
		t.Helper()
		s := must(t)(d.Backend("web", name))
		if got := fmt.Sprint(s.Operator, " ", s.State, " ", s.Weight, " ", s.FileWeight); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	look("a", "ready up 100 100")
	if s := must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"})); len(s.Warnings) != 0 || s.Operator != "drain" {
		t.Errorf("%+v", s)
	}
	must(t)(d.SetWeight("web", "b", pointer(7)))
	look("a", "drain drain 100 100")
	look("b", "ready up 7 50")
	if n := d.control.Set().Pools()[0].Live.Eligible(); n != 1 {
		t.Errorf("%d are eligible", n)
	}

	// A reload changes nothing of it, nor does another name or order.
	reload("BOTH")
	look("a", "drain drain 100 100")
	look("b", "ready up 7 50")
	reload(`[{name: b, address: "127.0.0.1:2", weight: 50}, {name: renamed, address: "127.0.0.1:1", weight: 90}]`)
	look("renamed", "drain drain 90 90")
	look("b", "ready up 7 50")

	// The one that is left may go too, which is worth a word.
	if s := must(t)(d.SetState("web", "b", admin.StateRequest{State: "maint"})); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "no backend left") {
		t.Errorf("%+v", s.Warnings)
	}
	must(t)(d.SetState("web", "b", admin.StateRequest{State: "ready"}))
	look("b", "ready up 7 50")

	// What is edited counts, and is not undone by editing it back.
	reload(`[{name: a, address: "127.0.0.1:1"}, {name: b, address: "127.0.0.1:2", weight: 60}]`)
	look("b", "ready up 60 60")
	reload("BOTH")
	look("b", "ready up 50 50")

	// Out of the configuration and in again: it is somebody new.
	reload(`[{name: b, address: "127.0.0.1:2", weight: 50}]`)
	reload("BOTH")
	look("a", "ready up 100 100")

	must(t)(d.SetWeight("web", "a", pointer(0)))
	look("a", "ready up 0 100")
	must(t)(d.SetWeight("web", "a", nil))
	look("a", "ready up 100 100")
	must(t)(d.SetWeight("web", "a", nil)) // nothing changes

	d.logging.close() // writes what waits
	for _, want := range []struct {
		n    int
		line string
	}{
		{1, `msg="backend state is changed" pool=web backend=a address=127.0.0.1:1 by=operator reason=drain was=ready`},
		{1, `backend=b address=127.0.0.1:2 by=operator reason=maint was=ready`},
		{1, `backend=b address=127.0.0.1:2 by=operator reason=ready was=maint`},
		{1, `by=operator reason=weight weight=7 was=auto configured=50`},
		{1, `by=operator reason=weight weight=auto was=0 configured=100`},
		{6, `by=operator`},
		{1, `by=configuration weight=60 was=7 was_configured=50`},
		{1, `is forgotten`},
	} {
		if n := strings.Count(log.String(), want.line); n != want.n {
			t.Errorf("%d times %q in the log, want %d:\n%s", n, want.line, want.n, log)
		}
	}
	changes := uint64(0)
	for _, b := range d.control.Set().Pools()[0].Live.Backends() {
		for c, n := range (source{d}).StateChanges(b) {
			if c.Author == "operator" {
				changes += n
			}
		}
	}
	if changes == 0 {
		t.Error("the changes are not counted")
	}
}

func TestOperatorUnknownNames(t *testing.T) {
	d, _, _ := operatedDaemon(t, "")
	for _, c := range []struct{ pool, backend, want string }{
		{"wbe", "a", `there is no pool "wbe"; did you mean "web"?`},
		{"database", "a", `there is no pool "database"; the pools are web`},
		{"web", "xyz", `there is no backend "xyz"; the backends are a, b`},
	} {
		_, err := d.Backend(c.pool, c.backend)
		_, err2 := d.SetState(c.pool, c.backend, admin.StateRequest{State: "drain"})
		_, err3 := d.SetWeight(c.pool, c.backend, pointer(1))
		_, err4 := d.Conns(admin.ConnQuery{Pool: c.pool, Backend: c.backend, Limit: 1})
		for _, err := range []error{err, err2, err3, err4} {
			if !errors.As(err, &admin.NotFound{}) || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
	}
	if _, err := d.Conns(admin.ConnQuery{Limit: 1}); err != nil {
		t.Error(err)
	}
}

// Commands, reloads and verdicts at once: what was said last holds in the end.
func TestOperatorConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	d, _, reload := operatedDaemon(t, path)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 20 {
				state := []string{"drain", "maint", "ready"}[(i+n)%3]
				if _, err := d.SetState("web", "a", admin.StateRequest{State: state}); err != nil {
					t.Error(err)
				}
				if _, err := d.SetWeight("web", "b", pointer(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		reload("BOTH")
		d.Status()
	}
	all.Wait()
	must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"}))
	s := must(t)(d.SetWeight("web", "b", pointer(9)))
	entries := keptOrders(t, path)
	if len(entries) != 2 || entries[0].State != "drain" || *entries[1].Weight != 9 || s.Weight != 9 {
		t.Errorf("%+v, %+v", entries, s)
	}
	if f := d.control.Set().Pools()[0].Live.Backends()[0].Flags(); f != balance.Drained {
		t.Errorf("a is %s", f)
	}
}
