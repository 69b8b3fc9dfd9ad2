package udp

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// With replies, a request that a backend refuses, or does not answer until its check
// fails, is answered by another one; its client sends it once.
func TestUDPRetry(t *testing.T) {
	t.Parallel()
	listen, gone := rig.UDPAddr(t), rig.UDPAddr(t)
	const pool = `balance: first, passive: {failures: 0}, check: `
	yaml := func(check string, first string) string {
		return rig.JSONLog + rig.UDPConfig(listen, "replies: 1, idle: 1h", pool+check, first, rig.Member("b", rig.StartTeller(t, "b")))
	}
	p := rig.Start(t, yaml("{type: none}", rig.Member("a", gone)))
	refused := rig.DialUDP(t, listen)
	if name, _ := refused.MustAsk(t); name != "b" {
		t.Errorf("%s answers", name)
	}
	if e := p.EndOf(t, refused); e.Backend != "b" || e.Retries != 1 || e.Outcome != "ok" || e.DatagramsIn != 1 || e.DatagramsOut != 1 {
		t.Errorf("%+v", e)
	}

	// At first it answers its check only, later nothing at all. No ICMP error comes: it hangs.
	var hangs atomic.Bool
	asked := make(chan string, 100)
	hung := rig.ListenUDP(t, nil, "127.0.0.1:0")
	rig.AnswerUDP(t, hung, func(d []byte, _ netip.AddrPort) [][]byte {
		switch {
		case string(d) != "ping":
			asked <- string(d)
		case !hangs.Load():
			return [][]byte{d}
		}
		return nil
	})
	p.MustReload(t, yaml(`{type: udp, interval: 50ms, fast_interval: 50ms, timeout: 100ms, fall: 2, rise: 1, udp: {send: ping, expect: ping}}`,
		rig.Member("a", hung.LocalAddr().(*net.UDPAddr).String())))
	waiting := rig.DialUDP(t, listen)
	done := make(chan string, 1)
	go func() {
		name, _, err := waiting.Ask()
		if err != nil {
			name = err.Error()
		}
		done <- name
	}()
	select {
	case <-asked:
	case <-time.After(rig.Patience):
		t.Fatal("nothing has come to a")
	}
	hangs.Store(true)
	if name := <-done; name != "b" {
		t.Errorf("%s answers", name)
	}
	if e := p.EndOf(t, waiting); e.Backend != "b" || e.Retries != 1 || e.Outcome != "ok" {
		t.Errorf("%+v", e)
	}
	if n := p.Metrics(t)[`poise_retries_total{service="web"}`]; n != 2 {
		t.Errorf("%v retries", n)
	}
}

// So is one that waits for a backend that goes into maintenance, or that a reload removes
// and closes.
func TestUDPRetryWhenClosed(t *testing.T) {
	t.Parallel()
	listen, b := rig.UDPAddr(t), rig.Member("b", rig.StartTeller(t, "b"))
	asked := make(chan string, 100)
	silent := rig.ListenUDP(t, nil, "127.0.0.1:0")
	rig.AnswerUDP(t, silent, func(d []byte, _ netip.AddrPort) [][]byte {
		asked <- string(d)
		return nil
	})
	yaml := func(members ...string) string {
		return rig.JSONLog + rig.UDPConfig(listen, "replies: 1, idle: 1h", "balance: first, on_remove: close, check: {type: none}, passive: {failures: 0}", members...)
	}
	p := rig.Start(t, yaml(rig.Member("a", silent.LocalAddr()), b))
	for name, shut := range map[string]func(){
		"maint":   func() { p.Operate(t, "maint", "web/a") },
		"removed": func() { p.MustReload(t, yaml(b)) },
	} {
		p.MustReload(t, yaml(rig.Member("a", silent.LocalAddr()), b))
		p.Operate(t, "ready", "web/a")
		c := rig.DialUDP(t, listen)
		answer := make(chan string, 1)
		go func() {
			who, _, err := c.Ask()
			if err != nil {
				who = err.Error()
			}
			answer <- who
		}()
		select {
		case <-asked:
		case <-time.After(rig.Patience):
			t.Fatalf("%s: nothing has come to a", name)
		}
		shut()
		if who := <-answer; who != "b" {
			t.Errorf("%s: %s answers", name, who)
		}
		if e := p.EndOf(t, c); e.Backend != "b" || e.Retries != 1 || e.Outcome != "ok" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
