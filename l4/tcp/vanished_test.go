package tcp_test

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
)

// vigilant has peers that leave bytes unanswered noticed after 2 s.
func vigilant(r *tcp.Route) {
	r.Spec.Idle, r.Spec.HalfClose = 0, time.Hour
	r.Spec.Keepalive = tcp.Keepalive{Idle: time.Second, Interval: time.Second, Probes: 1}
}

// Case O-43: a peer that vanishes with bytes on the way to it is noticed, whichever side
// it is and whatever else is done with its stream. The other side sees a reset, and
// passive checks hear of a backend. A socket filter that drops everything makes a kernel
// as good as gone.
func TestVanishedWithBytesInFlight(t *testing.T) {
	checks := map[string]func(*testing.T){} // after all have vanished: the waiting is done once
	for _, m := range modes {
		if m.proxyIn || m.sni || m.proxyOut != 0 || m.version != 0 {
			continue
		}
		for _, backend := range []bool{true, false} {
			for _, size := range []int{15, 1 << 20} {
				for _, half := range []bool{false, true} {
					name := m.name + map[bool]string{true: "/backend", false: "/client"}[backend] +
						map[bool]string{true: "/bulk", false: "/few"}[size > 15] + map[bool]string{true: "/half-closed", false: ""}[half]
					checks[name] = vanish(t, m, backend, size, half)
				}
			}
		}
	}
	for name, check := range checks {
		t.Run(name, check)
	}
}

// vanish has one side of a connection vanish, and returns what looks at the end of it.
func vanish(t *testing.T, m mode, backend bool, size int, half bool) func(*testing.T) {
	behind := make(chan end, 1)
	done := make(chan struct{})
	p := m.through(t, func(e end) {
		b := make([]byte, 4)
		io.ReadFull(e, b)
		e.Write(b)
		behind <- e
		<-done
	}, vigilant)
	t.Cleanup(func() { close(done) }) // before the backend waits for its connections to end
	client := m.client(t, p.dial())
	client.Write([]byte("ping"))
	if _, err := io.ReadFull(client, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	gone, there, want := client, <-behind, l4.ClientReset
	if backend {
		gone, there, want = there, client, l4.BackendReset
	}
	dropAll(t, raw(gone))
	if _, err := there.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if half {
		there.CloseWrite()
	}
	return func(t *testing.T) {
		there.SetReadDeadline(time.Now().Add(patience))
		if _, err := there.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("the other side sees %v", err)
		}
		s := p.outcome(want)
		if by := map[bool]l4.Side{true: l4.Backend, false: l4.Client}[backend]; s.By != by {
			t.Errorf("ended by %v", s.By)
		}
		evidence := []l4.Evidence{l4.Answered}
		if backend {
			evidence = append(evidence, l4.Failed)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !slices.Equal(p.evidence, evidence) {
			t.Errorf("passive checks hear %v, want %v", p.evidence, evidence)
		}
	}
}

// A peer that acknowledges and does not read is never taken for one that has vanished,
// nor is any without keepalive; a value of its own counts with and without.
func TestSlowIsNotVanished(t *testing.T) {
	const size = 32 << 20
	checks := map[string]func(*testing.T){}
	for name, c := range map[string]struct {
		keepalive tcp.Keepalive
		deaf      bool
		ends      bool
	}{
		"slow":                    {tcp.Keepalive{Idle: time.Second, Interval: time.Second, Probes: 1}, false, false},
		"without keepalive":       {tcp.Keepalive{Idle: time.Second, Interval: time.Second}, true, false},
		"a longer time":           {tcp.Keepalive{Idle: time.Second, Interval: time.Second, Probes: 1, Unanswered: time.Minute}, true, false},
		"a time of its own":       {tcp.Keepalive{Idle: time.Second, Interval: time.Second, Unanswered: time.Second}, true, true},
		"a time of its own, slow": {tcp.Keepalive{Idle: time.Second, Interval: time.Second, Unanswered: time.Second}, false, false},
	} {
		p := start(t, one(serve(t, func(c *net.TCPConn) {
			c.Read(make([]byte, 1))
			c.Write(make([]byte, size))
		})), vigilant, func(r *tcp.Route) { r.Spec.Keepalive = c.keepalive })
		client := p.narrow()
		client.Write([]byte("x"))
		if c.deaf {
			if _, err := io.ReadFull(client, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			dropAll(t, client)
		}
		checks[name] = func(t *testing.T) {
			if c.ends {
				p.outcome(l4.ClientReset)
				return
			}
			if p.Active() != 1 {
				t.Fatal("it has been ended")
			}
			if c.deaf {
				p.Kill(l4.Killed)
			} else if n, err := io.Copy(io.Discard, client); n != size || err != nil {
				t.Errorf("%d of %d bytes, then %v", n, size, err)
			}
		}
	}
	time.Sleep(5 * time.Second) // more than twice the limit
	for name, check := range checks {
		t.Run(name, check)
	}
}
