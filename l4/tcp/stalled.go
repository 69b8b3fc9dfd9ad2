package tcp

import (
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/sock"
)

// stallRetransmits is how often in a row the same bytes have been sent again,
// without any acknowledgement, on a connection that counts as stalled. One may be
// an unlucky packet.
const stallRetransmits = 2

// Stalled returns how many connections to b are established and how many of those
// are stuck in retransmission. When several are at once it is not the network's
// weather: the backend has vanished, and a check should find out before its next
// turn. It asks the kernel about each connection, so call it on suspicion or every
// second, not for every event. A loop that does not answer within a second is left
// out, and unix sockets cannot stall.
func (s *Server) Stalled(b *balance.Backend) (stalled, established int) {
	if b.Active() == 0 || b.Addr().Unix != "" {
		return 0, 0
	}
	var stuck, all atomic.Int64
	s.Loops.Within(time.Second, func(i int) {
		for c := s.workers[i].conns.first; c != nil; c = c.next {
			if c.phase != relaying || c.lease.Backend() != b {
				continue
			}
			all.Add(1)
			if sock.Delivering(int(c.backend.fd)).Retransmits >= stallRetransmits {
				stuck.Add(1)
			}
		}
	})
	return int(stuck.Load()), int(all.Load())
}
