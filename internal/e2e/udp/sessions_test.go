package udp

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Sessions go on through reloads: of other things, of the service's own settings, of
// backends that are added, and of others that are removed.
func TestUDPSessionsSurviveReloads(t *testing.T) {
	t.Parallel()
	listen, other := rig.UDPAddr(t), rig.UDPAddr(t)
	a, b, c := rig.Member("a", rig.StartTeller(t, "a")), rig.Member("b", rig.StartTeller(t, "b")), rig.Member("c", rig.StartTeller(t, "c"))
	yaml := func(options string, members ...string) string {
		return rig.JSONLog + rig.UDPConfig(listen, options, "balance: round-robin, check: {type: none}", members...)
	}
	p := rig.Start(t, yaml("idle: 1h", a, b))
	type session struct {
		*rig.UDPClient
		name, from string
	}
	var list []session
	for range 6 {
		c := rig.DialUDP(t, listen)
		name, from := c.MustAsk(t)
		list = append(list, session{c, name, from})
	}
	// same checks that every session is where it was, whatever backend has gone.
	same := func(what, gone string) {
		t.Helper()
		for i := range list {
			s := &list[i]
			name, from := s.MustAsk(t)
			moved := name != s.name || from != s.from
			if moved != (s.name == gone) {
				t.Errorf("%s: was served by %s from %s, now by %s from %s", what, s.name, s.from, name, from)
			}
			s.name, s.from = name, from
		}
		if n := p.Status(t).Connections; n != int64(len(list)) {
			t.Errorf("%s: %d sessions", what, n)
		}
	}
	same("before", "")
	p.Write(t, strings.Replace(yaml("idle: 1h", a, b), "services:\n", fmt.Sprintf("services:\n  other: {protocol: udp, listen: [%q], pool: web, udp: {idle: 200ms}}\n", other), 1))
	p.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the reload", func() bool { return len(p.Status(t).Services) == 2 })
	same("another service was added", "")
	if name, _ := rig.DialUDP(t, other).MustAsk(t); name == "" {
		t.Error("no backend serves it")
	}
	p.MustReload(t, yaml("idle: 2h, max_sessions: 6", b, a))
	rig.Eventually(t, "the other service's session to end", func() bool { return p.Status(t).Connections == 6 })
	for i := range list {
		s := &list[i]
		if name, from := s.MustAsk(t); name != s.name || from != s.from {
			t.Errorf("new settings: was served by %s from %s, now by %s from %s", s.name, s.from, name, from)
		}
	}
	rig.DialUDP(t, listen).Refused(t, p, "refused_limit") // they are in force
	p.MustReload(t, yaml("idle: 1h", c, a, b))
	same("a backend was added", "")
	p.MustReload(t, yaml("idle: 1h", a, b))
	same("it was removed", "")
	p.MustReload(t, yaml("idle: 1h", b, c))
	same("one in use was removed", "a")
	same("and nothing more changed", "")

	rig.Eventually(t, "5 endings in the access log", func() bool { return len(p.Ended(t)) >= 5 })
	down := 0
	for _, e := range p.Ended(t) {
		if e.Outcome == "backend_down" && e.Backend == "a" && e.DatagramsIn == e.DatagramsOut {
			down++
		}
	}
	if down != 3 {
		t.Errorf("%+v", p.Ended(t))
	}
	if p.Metrics(t).Sum("poise_udp_dropped_total") != 1 {
		t.Error("something was dropped")
	}
}

// A backend that fails is replaced for those sessions, and the others do not notice.
func TestUDPBackendFails(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	addrA := rig.UDPAddr(t)
	stop := rig.AnswerUDP(t, rig.ListenUDP(t, nil, addrA), rig.Teller("a"))
	p := rig.Start(t, rig.JSONLog+rig.UDPConfig(listen, "", `balance: round-robin, passive: {failures: 0}, check: {type: udp, interval: 100ms, fast_interval: 100ms, down_interval: 100ms, fall: 2, rise: 1, udp: {send: ping, expect: ping}}`,
		rig.Member("a", addrA), rig.Member("b", rig.StartTeller(t, "b"))))
	clients := map[string]*rig.UDPClient{}
	froms := map[string]string{}
	for len(clients) < 2 {
		c := rig.DialUDP(t, listen)
		name, from := c.MustAsk(t)
		clients[name], froms[name] = c, from
	}
	stop()
	rig.Eventually(t, "a to be down", func() bool { return p.Backend(t, "web", "a").State == "down" })
	if reason := p.Backend(t, "web", "a").Reason; !strings.HasPrefix(reason, "L4CON") {
		t.Errorf("%q", reason)
	}
	for range 3 {
		for _, c := range clients {
			if name, _ := c.MustAsk(t); name != "b" {
				t.Errorf("%s answers", name)
			}
		}
		if _, from := clients["b"].MustAsk(t); from != froms["b"] {
			t.Error("the session that is well was moved too")
		}
	}
	rig.AnswerUDP(t, rig.ListenUDP(t, nil, addrA), rig.Teller("a"))
	rig.Eventually(t, "a to be up", func() bool { return p.Backend(t, "web", "a").State == "up" })
	rig.Eventually(t, "a to be used", func() bool { name, _ := rig.DialUDP(t, listen).MustAsk(t); return name == "a" })
	if name, _ := clients["a"].MustAsk(t); name != "b" {
		t.Error("a session was moved without need")
	}
}

// A session ends with as many replies as are due, and not before.
func TestUDPReplies(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	twice := rig.ListenUDP(t, nil, "127.0.0.1:0")
	rig.AnswerUDP(t, twice, func(d []byte, _ netip.AddrPort) [][]byte { return [][]byte{d, d} })
	yaml := func(replies int) string {
		return rig.JSONLog + rig.UDPConfig(listen, fmt.Sprintf("replies: %d, idle: 1h", replies), "check: {type: none}", rig.Member("a", twice.LocalAddr()))
	}
	p := rig.Start(t, yaml(2))
	c := rig.DialUDP(t, listen)
	for range 3 { // three sessions of one client
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := c.Receive(t); string(got[0]) != "hello" {
				t.Errorf("%q", got)
			}
		}
		rig.Eventually(t, "the session to end", func() bool { return p.Status(t).Connections == 0 })
	}
	rig.Eventually(t, "three lines", func() bool { return len(p.Ended(t)) == 3 })
	for _, e := range p.Ended(t) {
		if e.Outcome != "ok" || e.By != "backend" || e.DatagramsIn != 1 || e.DatagramsOut != 2 || e.BytesIn != 5 || e.BytesOut != 10 ||
			e.Proto != "udp" || e.FirstByte < 0 || e.Backend != "a" || e.VIP != "127.0.0.1" {
			t.Errorf("%+v", e)
		}
	}

	// Three are due for each, and two come: it stays.
	p.MustReload(t, yaml(3))
	for range 2 {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		c.Receive(t)
	}
	if n := p.Status(t).Connections; n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// A session without datagrams ends. How it is called depends on the backend.
func TestUDPIdle(t *testing.T) {
	t.Parallel()
	listen, silent := rig.UDPAddr(t), rig.UDPAddr(t)
	mute := rig.ListenUDP(t, nil, "127.0.0.1:0")
	rig.AnswerUDP(t, mute, func([]byte, netip.AddrPort) [][]byte { return nil })
	const idle = 300 * time.Millisecond
	p := rig.Start(t, fmt.Sprintf(`
log: {access_format: json}
defaults: {pools: {check: {type: none}}, services: {protocol: udp, udp: {idle: %s}}}
services:
  web: {listen: [%q], pool: web}
  silent: {listen: [%q], pool: silent}
pools:
  web: {backends: [%s]}
  silent: {backends: [%s]}
`, idle, listen, silent, rig.Member("a", rig.StartTeller(t, "a")), rig.Member("mute", mute.LocalAddr())))
	c, s := rig.DialUDP(t, listen), rig.DialUDP(t, silent)
	c.MustAsk(t)
	for range 3 {
		if _, err := s.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	c.MustAsk(t)
	if e := p.EndOf(t, c); e.Outcome != "ok" || e.Service != "web" || e.DatagramsIn != 2 || e.DatagramsOut != 2 || e.Total < float64(idle.Milliseconds()) {
		t.Errorf("%+v", e)
	}
	if e := p.EndOf(t, s); e.Outcome != "idle" || e.By != "backend" || e.Service != "silent" || e.Backend != "mute" || e.DatagramsIn != 3 || e.DatagramsOut != 0 || e.BytesIn != 15 || e.FirstByte != -1 {
		t.Errorf("%+v", e)
	}
	if n := p.Status(t).Connections; n != 0 {
		t.Errorf("%d sessions", n)
	}
	c.MustAsk(t) // in a session of its own
	m := p.Metrics(t)
	if m[`poise_sessions_total{outcome="ok",service="web"}`] != 1 || m[`poise_sessions_total{outcome="idle",service="silent"}`] != 1 ||
		m[`poise_session_duration_seconds_count{service="silent"}`] != 1 {
		t.Errorf("%v", m)
	}
}

// A limit of sessions, per service and per backend, holds, and makes room again.
func TestUDPMaxSessions(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	a := rig.Member("a", rig.StartTeller(t, "a"), "max_connections: 2")
	p := rig.Start(t, rig.UDPConfig(listen, "max_sessions: 3, idle: 1h", "check: {type: none}", rig.Member("a", rig.StartTeller(t, "a"))))
	var list []*rig.UDPClient
	for range 3 {
		c := rig.DialUDP(t, listen)
		c.MustAsk(t)
		list = append(list, c)
	}
	for range 3 {
		rig.DialUDP(t, listen).Refused(t, p, "refused_limit")
	}
	for _, c := range list {
		c.MustAsk(t)
	}
	if s := p.Status(t).Services[0]; s.Connections != 3 || s.UDP.Dropped["refused"] != 3 || s.Total != 6 {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(p.Stderr(), "max_sessions") {
		t.Error("the log does not say so")
	}

	// The backend's own limit. Sessions that are there beyond it stay.
	p.MustReload(t, rig.UDPConfig(listen, "idle: 300ms", "check: {type: none}", a))
	for _, c := range list[:2] {
		c.MustAsk(t)
	}
	list[2].Refused(t, p, "refused_limit")
	if b := p.Backend(t, "web", "a"); b.Connections != 2 {
		t.Errorf("%+v", b)
	}
	rig.Eventually(t, "the sessions to end", func() bool { return p.Status(t).Connections == 0 })
	list[2].MustAsk(t)
}
