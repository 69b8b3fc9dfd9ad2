package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/loadgen"
)

func reserve(t *testing.T) string {
	t.Helper()
	r, err := loadgen.Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r.Addr().String()
}

// embedded is a configuration of one service, and where that listens.
func embedded(t *testing.T) (file *config.File, listen string) {
	t.Helper()
	b, err := loadgen.NewBackend("db1", "", loadgen.Behaviour{Mode: loadgen.Echo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	listen = reserve(t)
	return parse(t, fmt.Sprintf(`
admin: {socket: %s/admin.sock, http: %q, state: ""}
services:
  web: {listen: [%q], pool: web}
pools:
  web: {backends: [%q]}
`, t.TempDir(), reserve(t), listen, b.Addr())), listen
}

// A program that has a daemon inside it runs it on a configuration of its own,
// and ends it by a context.
func TestEmbedded(t *testing.T) {
	file, listen := embedded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan *Daemon, 1), make(chan error, 1)
	var log bytes.Buffer
	go func() {
		ended <- Run(ctx, Options{File: file, Stdout: io.Discard, Stderr: &log, Ready: func(d *Daemon) { ready <- d }})
	}()
	var d *Daemon
	select {
	case d = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if err := d.Ready(); err != nil {
		t.Error(err)
	}
	if err := d.Live(); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if res := d.Reload(t.Context()); res.OK || res.Error != errEmbedded.Error() {
		t.Errorf("%+v", res)
	}
	conn.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if d.Ready() == nil {
		t.Error("it is ready after its end")
	}
	if res := d.Reload(t.Context()); res.OK || res.Error != errStopping.Error() {
		t.Errorf("%+v", res)
	}
	if !strings.HasSuffix(log.String(), "msg=stopped\n") {
		t.Errorf("the log:\n%s", &log)
	}
}

func TestRunFailsClean(t *testing.T) {
	file, listen := embedded(t)
	taken, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = Run(t.Context(), Options{File: file, Stdout: io.Discard, Stderr: io.Discard})
	if err == nil || !strings.Contains(err.Error(), listen) {
		t.Errorf("got %v", err)
	}
	if conn, err := net.Dial("tcp", file.Admin.HTTP); err == nil {
		conn.Close()
		t.Error("the admin interface is left")
	}
}

// Whoever asks before a reload has begun shares it; whoever asks later gets one
// that begins later.
func TestReloadsCoalesce(t *testing.T) {
	r := newReloads()
	first := r.ask()
	if r.ask() != first {
		t.Error("a reload that has not begun is not shared")
	}
	if r.take() != first {
		t.Error("another one begins")
	}
	second := r.ask()
	if second == first {
		t.Error("a reload that has begun is shared")
	}
	if r.take() != second {
		t.Error("the second one does not begin")
	}
	r.ask()
	r.close()
	if r.take() != nil {
		t.Error("a reload begins after the end")
	}
}

// However many ask, everybody gets the answer of a reload that began after the
// question.
func TestReloadsAnswerAll(t *testing.T) {
	r := newReloads()
	var mu sync.Mutex
	began := map[*reload]int{}
	clock := 0
	tick := func() int {
		mu.Lock()
		defer mu.Unlock()
		clock++
		return clock
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for one := r.take(); one != nil; one = r.take() {
			at := tick()
			mu.Lock()
			began[one] = at
			mu.Unlock()
			time.Sleep(time.Millisecond)
			close(one.done)
		}
	}()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				asked := tick()
				one := r.ask()
				<-one.done
				mu.Lock()
				if began[one] < asked {
					t.Error("answered by a reload that began before the question")
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	r.close()
	<-done
	if len(began) >= 160 {
		t.Errorf("%d reloads for 160 questions", len(began))
	}
}

func TestLoggingFollowsReload(t *testing.T) {
	var out bytes.Buffer
	l := newLogging(&out)
	log := l.logger()
	derived := log.With("a", 1).WithGroup("g").With("b", 2)
	derived.Debug("not yet")
	l.set(config.Log{Level: slog.LevelDebug, Format: "json"})
	derived.Debug("now", "c", 3)
	l.set(config.Log{Level: slog.LevelError, Format: "text"})
	log.Warn("no longer")
	log.Error("at the end")
	l.close()
	got := out.String()
	for _, want := range []string{`"msg":"now","a":1,"g":{"b":2,"c":3}}` + "\n", "level=ERROR msg=\"at the end\"\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 2 {
		t.Errorf("got\n%s", got)
	}
}

func parse(t *testing.T, yaml string) *config.File {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
