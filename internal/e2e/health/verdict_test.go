package health

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-11: a verdict survives a reload, and so does the way back from it.
func TestVerdictSurvivesReload(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := func(nameOfA string, weightOfB int, interval time.Duration) string {
		return fmt.Sprintf(`
services:
  web: {listen: [%q], pool: web, retries: 0}
pools:
  web:
    balance: round-robin
    check: {type: tcp, interval: %s, fast_interval: %s, down_interval: %s, rise: 2, fall: 2}
    passive: {failures: 0}
    backends:
      - {name: %s, address: %q}
      - {name: b, address: %q, weight: %d}
`, listen, interval, interval, interval, nameOfA, a.Addr(), b.Addr(), weightOfB)
	}
	const interval = 100 * time.Millisecond
	p := rig.Start(t, yaml("a", 100, interval))

	a.Kill()
	rig.Eventually(t, "a to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })

	clients := rig.Repeat(t, 1, 20*time.Millisecond, func() error {
		name, err := rig.Ask(listen)
		if err == nil && name != "b" {
			err = fmt.Errorf("%s served", name)
		}
		return err
	})
	for _, c := range []struct {
		name string
		yaml string
	}{
		{"a", yaml("a", 50, interval)},
		{"a", yaml("a", 50, 2*interval)},
		{"renamed", yaml("renamed", 50, 2*interval)},
		{"a", yaml("a", 50, 2*interval)},
	} {
		if changes := p.MustReload(t, c.yaml); len(changes) == 0 {
			t.Error("nothing changed")
		}
		if got := p.Backend(t, "web", c.name); got.State != "down" || !strings.HasPrefix(got.Reason, "L4CON") {
			t.Errorf("right after the reload: %+v", got)
		}
		clients.More(t, 5)
	}
	clients.Stop()
	if n := p.Metrics(t).Sum("poise_backend_connect_failures_total"); n != 0 {
		t.Errorf("%v connects failed", n)
	}

	if err := a.Revive(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a to be used again", func() bool { name, err := rig.Ask(listen); return err == nil && name == "a" })
}

// A backend that is ejected is so after a reload, and returns. A pool that was
// removed and is configured again starts with a clean slate.
func TestEjectionSurvivesReload(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	more := "    check: {type: none}\n    passive: {failures: 3, base: 3s, max: 3s}\n"
	service := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n", listen)
	with := service + rig.OnePool("web", "round-robin", more, a, b)
	p := rig.Start(t, with)
	a.Kill()
	eject := func() {
		t.Helper()
		rig.Eventually(t, "a to be ejected", func() bool {
			if name, err := rig.Ask(listen); err != nil || name != "b" {
				t.Fatalf("%q, %v", name, err)
			}
			return p.Backend(t, "web", "a").State == "ejected"
		})
	}
	eject()
	p.MustReload(t, service+strings.Replace(rig.OnePool("web", "least-conn", more, b, a), "name: a,", "name: renamed,", 1))
	if got := p.Backend(t, "web", "renamed"); got.State != "ejected" || !strings.Contains(got.Reason, "3 connections in a row failed") {
		t.Errorf("after the reload: %+v", got)
	}
	p.MustReload(t, with)
	if got := p.Backend(t, "web", "a"); got.State != "ejected" {
		t.Errorf("after the second reload: %+v", got)
	}
	// On trial it is still dead, and ejected again; once it is back a trial returns it.
	rig.Eventually(t, "a to be on trial", func() bool { return p.Backend(t, "web", "a").State == "half-open" })
	p.MustReload(t, service+strings.Replace(rig.OnePool("web", "round-robin", more, a, b), "name: a,", "name: renamed,", 1))
	if got := p.Backend(t, "web", "renamed"); got.State != "half-open" || got.Trials != 1 {
		t.Errorf("after the reload: %+v", got)
	}
	p.MustReload(t, with)
	eject()
	if err := a.Revive(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a to return", func() bool { name, err := rig.Ask(listen); return err == nil && name == "a" })
	rig.Eventually(t, "a to be up", func() bool { return p.Backend(t, "web", "a").State == "up" })
	a.Kill()
	eject()

	other := fmt.Sprintf("services:\n  web: {listen: [%q], pool: other}\npools:\n", listen) + rig.OnePool("other", "round-robin", more, b)
	p.MustReload(t, other)
	p.MustReload(t, with)
	if got := p.Backend(t, "web", "a"); got.State != "up" {
		t.Errorf("in a pool that was removed for a while: %+v", got)
	}
	for _, want := range []string{
		"backend is ejected", "backend is half-open", "backend is no longer ejected", "by=passive",
		"reason=failures", "reason=time_over", "reason=trial_failed", "reason=trial_passed", "3 connections in a row failed",
	} {
		if !strings.Contains(p.Stderr(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
}

// A pool that was removed while a backend was down and is configured again finds
// out anew, and is not stuck with what it knew.
func TestVerdictOfRemovedPool(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	more := "    check: {type: tcp, interval: 100ms, fast_interval: 100ms, down_interval: 100ms, rise: 2, fall: 2}\n"
	with := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n", listen) + rig.OnePool("web", "round-robin", more, a, b)
	without := fmt.Sprintf("services:\n  web: {listen: [%q], pool: other}\npools:\n", listen) + rig.OnePool("other", "round-robin", more, b)
	p := rig.Start(t, with)
	held := map[string]*rig.Client{} // so that the pool has something to live on for
	for len(held) < 2 {
		c := rig.Dial(t, listen)
		held[c.MustAsk(t)] = c
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })
	p.MustReload(t, without)
	rig.Eventually(t, "the removed pool to be emptied", func() bool { return p.Backend(t, "web", "a").State == "removed" })
	if err := a.Revive(); err != nil {
		t.Fatal(err)
	}
	p.MustReload(t, with)
	rig.Eventually(t, "a to be used", func() bool { name, err := rig.Ask(listen); return err == nil && name == "a" })
	// Of the connections of ask the last may not have ended yet.
	rig.Eventually(t, "a to have the held connection", func() bool { return p.Backend(t, "web", "a").Connections == 1 })
	if got := p.Backend(t, "web", "a"); got.State != "up" || got.Connections != 1 || got.Total < 2 {
		t.Errorf("%+v", got)
	}
	for _, c := range held {
		c.MustAsk(t)
	}
}

// site is two backends on addresses of their own, a and b, whose health is told
// by HTTP on a common side port.
type site struct {
	a, b   *loadgen.Backend
	port   uint16
	aFails atomic.Bool
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	var err error
	if s.a, err = loadgen.NewBackend("a", "127.0.0.2:0", loadgen.Behaviour{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.a.Close)
	if s.b, err = loadgen.NewBackend("b", "127.0.0.3:0", loadgen.Behaviour{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.b.Close)
	serve := func(addr string, h http.HandlerFunc) {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: h}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(ln) }()
		t.Cleanup(func() { server.Close(); <-done })
		s.port = netip.MustParseAddrPort(ln.Addr().String()).Port()
	}
	serve("127.0.0.2:0", func(w http.ResponseWriter, _ *http.Request) {
		if s.aFails.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	serve(fmt.Sprintf("127.0.0.3:%d", s.port), func(http.ResponseWriter, *http.Request) {})
	return s
}

func (s *site) pool(onDown string, backends ...*loadgen.Backend) string {
	return rig.OnePool("web", "first", fmt.Sprintf(
		"    on_down: %s\n    check: {type: http, port: %d, interval: 100ms, fast_interval: 100ms, down_interval: 100ms, fall: 2, rise: 1}\n", onDown, s.port), backends...)
}

// clients opens 20 connections to a.
func (s *site) clients(t *testing.T, listen string) (list []*rig.Client) {
	t.Helper()
	for range 20 {
		c := rig.Dial(t, listen)
		if name := c.MustAsk(t); name != "a" {
			t.Fatalf("%s served", name)
		}
		list = append(list, c)
	}
	return list
}

// Case O-06: what happens to open connections when their backend goes down.
func TestOnDown(t *testing.T) {
	s := newSite(t)
	listen := rig.Addr(t)
	service := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n", listen)

	p := rig.Start(t, service+s.pool("close", s.a, s.b))
	list := s.clients(t, listen)
	s.aFails.Store(true)
	rig.WantClosed(t, list)
	if got := p.Backend(t, "web", "a"); got.State != "down" || !strings.HasPrefix(got.Reason, "L7STS") {
		t.Errorf("%+v", got)
	}
	if name, err := rig.Ask(listen); name != "b" || err != nil {
		t.Errorf("a new one: %q, %v", name, err)
	}
	rig.Eventually(t, "20 lines in the access log", func() bool { return strings.Count(p.Stdout(), "/backend_down ") == 20 })
	s.aFails.Store(false)
	rig.Eventually(t, "a to be back", func() bool { return p.Backend(t, "web", "a").State == "up" })

	// The policy can be changed while it runs.
	p.MustReload(t, service+s.pool("keep", s.a, s.b))
	list = s.clients(t, listen)
	s.aFails.Store(true)
	rig.Eventually(t, "a to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })
	if name, err := rig.Ask(listen); name != "b" || err != nil {
		t.Errorf("a new one: %q, %v", name, err)
	}
	for _, c := range list {
		if name := c.MustAsk(t); name != "a" {
			t.Fatalf("%s served", name)
		}
	}

	// A backend that is removed keeps its connections too.
	p.MustReload(t, service+s.pool("close", s.b))
	for _, c := range list {
		if name := c.MustAsk(t); name != "a" {
			t.Fatalf("%s served", name)
		}
	}
	if got := p.Backend(t, "web", "a"); got.State != "removed" || got.Connections != 20 {
		t.Errorf("%+v", got)
	}

	// A backend's own end is always passed on.
	s.a.Kill()
	rig.WantClosed(t, list)
	rig.Eventually(t, "the removed one to be forgotten", func() bool { return len(p.Status(t).Pools[0].Backends) == 1 })
}
