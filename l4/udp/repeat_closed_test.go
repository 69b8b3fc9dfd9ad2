package udp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// Where a backend is closed, whoever wants it so, the requests it has not answered are not
// lost with it. In maintenance and after a drain its client heard nothing before.
func TestClosedWithItsBackend(t *testing.T) {
	for name, c := range map[string]struct {
		flag    balance.Flag // that it gets; 0 = it is removed
		outcome l4.Outcome
	}{
		"down":                        {balance.Down, l4.BackendDown},
		"in maintenance":              {balance.Maint, l4.Drained},
		"drained for long enough":     {balance.Drained, l4.Drained},
		"removed":                     {0, l4.BackendDown},
		"removed and drained so long": {0, l4.Drained},
	} {
		for _, spread := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " ", spread), func(t *testing.T) {
				hung, b := mute(t, "a"), echo(t, "b")
				p := start(t, specs(hung.server, b), retrying(1))
				inOrder(p)
				conn := p.dial()
				conn.Write([]byte("x"))
				eventually(t, "it to arrive", func() bool { return len(hung.heard()) == 1 })
				gone := p.pool.Backends()[0]
				if c.flag != 0 {
					p.pool.SetFlag(gone.ID(), c.flag, true)
				} else {
					spec := p.pool.Spec()
					spec.Backends = specs(b)
					p.pool.Update(spec)
				}
				p.CloseBackend(gone, c.outcome, spread)
				if got := reply(t, conn); got != "x" {
					t.Errorf("got %q", got)
				}
				if s := p.ended(1)[0]; s.Backend != "b" || s.Retries != 1 || s.Outcome != l4.OK {
					t.Errorf("%+v", s)
				}
				if n := gone.Active(); n != 0 {
					t.Errorf("it still has %d leases", n)
				}
			})
		}
	}
}

// Without another backend a session that waits is closed with its own; so is one whose
// client has one reply of two, for another backend's might not belong to it.
func TestClosedForGood(t *testing.T) {
	for name, servers := range map[string][]*server{
		"the only backend": {mute(t, "a").server},
		"answered in part": {named(t, "a"), named(t, "b")},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, specs(servers...), retrying(2))
			inOrder(p)
			p.dial().Write([]byte("x"))
			eventually(t, "it to arrive", func() bool { return p.Active() == 1 && servers[0].count() == 1 })
			if len(servers) > 1 {
				eventually(t, "a reply", func() bool { p.Flush(); return p.stats().DatagramsOut.Load() == 1 })
			}
			p.pool.SetFlag(p.pool.Backends()[0].ID(), balance.Maint, true)
			p.CloseBackend(p.pool.Backends()[0], l4.Drained, 0)
			eventually(t, "it to be closed", func() bool { return p.Active() == 0 })
			p.Kill(l4.Killed) // what waits for late replies
			if s := p.ended(1)[0]; s.Backend != "a" || s.Retries != 0 || s.Outcome != l4.Drained {
				t.Errorf("%+v", s)
			}
		})
	}
}

// However many requests wait when a backend is closed, a loop takes some at a time: other
// clients must not wait for all.
func TestClosedByTurns(t *testing.T) {
	const clients, turn = 200, 32
	hung, other := mute(t, "a"), mute(t, "b")
	p := startOn(t, 1, specs(hung.server, other.server), retrying(1))
	inOrder(p)
	for i := range clients {
		p.dial().Write([]byte("x"))
		if i%50 == 49 {
			eventually(t, "them to arrive", func() bool { return len(hung.heard()) == i+1 })
		}
	}
	gone := p.pool.Backends()[0]
	p.pool.SetFlag(gone.ID(), balance.Maint, true)
	if n := p.BeginClosing(gone, l4.Drained, p.stats().Retries.Load); n != turn {
		t.Errorf("%d were repeated in one turn, want %d", n, turn)
	}
	eventually(t, "all to be repeated", func() bool { return len(other.heard()) == clients })
	if n := gone.Active(); n != 0 {
		t.Errorf("%d sessions still have the backend", n)
	}
}

// Sessions that end before their requests have been repeated are left alone. Before, the
// process crashed.
func TestEndedBeforeItsRepetition(t *testing.T) {
	const clients = 100 // more than are repeated at once
	for range 3 {
		hung := mute(t, "a")
		p := startOn(t, 1, specs(hung.server, mute(t, "b").server), retrying(1))
		inOrder(p)
		for i := range clients {
			p.dial().Write([]byte("x"))
			eventually(t, "it to arrive", func() bool { return len(hung.heard()) == i+1 })
		}
		p.down(0)
		p.Kill(l4.Killed)
		p.ended(clients)
	}
}
