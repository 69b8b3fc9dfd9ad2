package udp

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// An operator takes a backend out: open sessions finish what they are doing, clients
// that come get another one.
func TestUDPDrain(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	p := rig.Start(t, rig.JSONLog+rig.UDPConfig(listen, "idle: 500ms", "balance: first, check: {type: none}",
		rig.Member("a", rig.StartTeller(t, "a")), rig.Member("b", rig.StartTeller(t, "b"))))
	c := rig.DialUDP(t, listen)
	_, session := c.MustAsk(t)
	c.MustAsk(t)
	// Time is short: what happens between two datagrams of c must take less than idle.
	kept := false
	if said := p.Operate(t, "drain", "web/a"); !strings.Contains(said, "gets no new") {
		t.Error(said)
	}
	for range 5 {
		name, from := c.MustAsk(t)
		kept = kept || name == "a" && from == session
		if name == "b" {
			break // the machine was slow
		}
	}
	if !kept {
		t.Log("the session was idle for too long to show anything")
	}
	if name, _ := rig.DialUDP(t, listen).MustAsk(t); name != "b" {
		t.Errorf("a new client is served by %s", name)
	}
	if said := p.Operate(t, "drain", "web/a", "--wait"); said != "web/a is drained: no connection is open" {
		t.Error(said)
	}
	if name, _ := c.MustAsk(t); name != "b" {
		t.Errorf("afterwards it is served by %s", name)
	}
	p.Operate(t, "ready", "web/a")
	if name, _ := rig.DialUDP(t, listen).MustAsk(t); name != "a" {
		t.Errorf("afterwards a new client is served by %s", name)
	}

	// Maintenance ends sessions; their clients go on with another backend.
	held := rig.DialUDP(t, listen)
	held.MustAsk(t)
	p.Operate(t, "maint", "web/a")
	if name, _ := held.MustAsk(t); name != "b" {
		t.Errorf("in maintenance %s answers", name)
	}
	rig.Eventually(t, "a line that says why", func() bool { return strings.Contains(p.Stdout(), `"outcome":"drained"`) })
	// The last one too: no backend answers, and the datagrams are counted.
	if _, stderr, code := rig.CLI(t, "maint", "web/b", "--socket", p.Socket()); code != 0 || !strings.Contains(stderr, "no backend left") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	held.Refused(t, p, "no_backend")
}

// On the way out sessions go on for as long as drain lets them, and new clients get
// nothing.
func TestUDPStop(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	const drain = 3 * time.Second
	p := rig.Start(t, "runtime: {drain: "+drain.String()+"}\n"+rig.JSONLog+rig.UDPConfig(listen, "idle: 1h", "check: {type: none}", rig.Member("a", rig.StartTeller(t, "a"))))
	c, late := rig.DialUDP(t, listen), rig.DialUDP(t, listen)
	_, session := c.MustAsk(t)
	p.Signal(syscall.SIGTERM)
	began := time.Now()
	rig.Eventually(t, "it to drain", func() bool { return strings.Contains(p.Stderr(), "msg=draining connections=1") })
	served, asked := 0, 1
	last := began
	for ; !p.Gone(); asked++ {
		_, from, err := c.AskFor(500 * time.Millisecond)
		if err != nil {
			// It is over, or the machine is slow: then the answer may still come.
			time.Sleep(20 * time.Millisecond)
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			for err = nil; err == nil; _, err = c.Read(make([]byte, 64)) {
			}
			continue
		}
		if from != session {
			t.Errorf("the session was %s and is %s", session, from)
		}
		if served == 0 {
			if _, _, err := late.AskFor(50 * time.Millisecond); err == nil {
				t.Error("a new client gets an answer")
			}
			if s := p.Status(t); s.State != "stopping" || s.Connections != 1 || p.Readyz() != http.StatusServiceUnavailable {
				t.Errorf("%s, %d sessions", s.State, s.Connections)
			}
		}
		served, last = served+1, time.Now()
		time.Sleep(20 * time.Millisecond)
	}
	if after := last.Sub(began); served == 0 || after < drain/2 {
		t.Errorf("%d answers, the last after %v", served, after)
	}
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// The end may come between a datagram and its answer; what is answered too late for
	// this client is answered.
	if e := p.EndOf(t, c); e.Outcome != "drained" || e.DatagramsIn > asked || e.DatagramsOut <= served ||
		e.DatagramsOut > e.DatagramsIn || e.DatagramsOut < e.DatagramsIn-1 {
		t.Errorf("%d of %d answered: %+v", served+1, asked, e)
	}
	if n := len(p.Ended(t)); n != 1 {
		t.Errorf("%d lines in the access log", n)
	}
}

// Without a session the stop does not wait, and after a second signal it does not either.
func TestUDPStopNow(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	yaml := "runtime: {drain: 1h}\n" + rig.UDPConfig(listen, "idle: 1h", "check: {type: none}", rig.Member("a", rig.StartTeller(t, "a")))
	p := rig.Start(t, yaml)
	p.Stop(t)
	p = rig.Start(t, yaml)
	rig.DialUDP(t, listen).MustAsk(t)
	p.Signal(syscall.SIGTERM)
	rig.Eventually(t, "it to drain", func() bool { return strings.Contains(p.Stderr(), "msg=draining connections=1") })
	p.Stop(t)
	if !strings.Contains(p.Stdout(), "/killed ") {
		t.Errorf("%q", p.Stdout())
	}
}

// Sessions are closed where a policy or the operator says so, without a datagram of
// their clients.
func TestUDPCloses(t *testing.T) {
	t.Parallel()
	listen, addrA := rig.UDPAddr(t), rig.UDPAddr(t)
	stop := rig.AnswerUDP(t, rig.ListenUDP(t, nil, addrA), rig.Teller("a"))
	b := rig.Member("b", rig.StartTeller(t, "b"))
	p := rig.Start(t, rig.JSONLog+rig.UDPConfig(listen, "idle: 1h", "balance: first, on_down: close, on_remove: close, passive: {failures: 0}, "+
		"check: {type: udp, interval: 100ms, fast_interval: 100ms, down_interval: 100ms, rise: 1, fall: 2, udp: {send: ping, expect: ping}}", rig.Member("a", addrA), b))
	hold := func(name string) *rig.UDPClient {
		t.Helper()
		c := rig.DialUDP(t, listen)
		if got, _ := c.MustAsk(t); got != name {
			t.Errorf("%s answers, not %s", got, name)
		}
		return c
	}
	c := hold("a")
	if said := p.Operate(t, "drain", "web/a", "--wait", "--deadline", "100ms", "--close"); said != "web/a is drained: 1 connection was closed after 100ms" {
		t.Error(said)
	}
	if e := p.EndOf(t, c); e.Outcome != "drained" || e.DatagramsIn != 1 || e.DatagramsOut != 1 {
		t.Errorf("%+v", e)
	}
	p.Operate(t, "ready", "web/a")
	c = hold("a")
	stop()
	if e := p.EndOf(t, c); e.Outcome != "backend_down" || e.Backend != "a" {
		t.Errorf("%+v", e)
	}
	if name, _ := c.MustAsk(t); name != "b" {
		t.Errorf("afterwards %s answers", name)
	}
	c = hold("b")
	p.MustReload(t, rig.JSONLog+rig.UDPConfig(listen, "idle: 1h", "on_remove: close, check: {type: none}", rig.Member("c", rig.StartTeller(t, "c"))))
	if e := p.EndOf(t, c); e.Backend != "b" || e.Outcome == "ok" {
		t.Errorf("%+v", e)
	}
	if name, _ := c.MustAsk(t); name != "c" {
		t.Errorf("afterwards %s answers", name)
	}
}
