package udp_test

import (
	"testing"

	"github.com/poise-lb/poise/l4"
)

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
