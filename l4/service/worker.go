package service

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
)

// A Worker is what a protocol has on one loop. All methods are called on that.
type Worker interface {
	// Kill ends all clients with outcome o.
	Kill(o l4.Outcome)
	// CloseBackend is the worker's part of Server.CloseBackend, with EndEvenly. Clients
	// that have come later than before, a time of the loop, are left alone.
	CloseBackend(b *balance.Backend, o l4.Outcome, over, before time.Duration)
	// FlushCounts is the worker's part of Server.Flush.
	FlushCounts()
	// Oldest is the worker's part of Server.Conns.
	Oldest(limit int, pool, backend string) []l4.Conn
	// Shut closes everything for good.
	Shut()
}

// loopPatience is how long a loop may take to answer a question about its clients. One
// that is late is left out.
const loopPatience = time.Second

// Kill ends all clients with outcome o. It does not wait.
func (s *Server[R, T, S]) Kill(o l4.Outcome) {
	s.Loops.Each(func(i int) { s.workers[i].Kill(o) })
}

// CloseBackend ends the clients of b with outcome o, evenly over some time (0 = at once), so
// that they do not all come back in one burst; those that come later are left alone. What can go on with another backend does so at once: connections that are still
// being made, and sessions that wait for an answer of b when it is eligible no more. It
// does not wait.
func (s *Server[R, T, S]) CloseBackend(b *balance.Backend, o l4.Outcome, over time.Duration) {
	called := time.Now()
	s.Loops.Each(func(i int) {
		// The loop comes to it some time after the call, and to newer clients before.
		s.workers[i].CloseBackend(b, o, over, s.Loops[i].Precise()-time.Since(called))
	})
}

// Flush adds what open clients have moved so far to the counters, which otherwise learn
// of it when a client ends.
func (s *Server[R, T, S]) Flush() {
	s.Loops.Within(loopPatience, func(i int) { s.workers[i].FlushCounts() })
}

// Conns returns at most limit open clients, the oldest first: those of a pool, of a
// backend, or of any if the name is "". Each loop looks at its own from the oldest on
// until it has enough, which stops its traffic for as long.
func (s *Server[R, T, S]) Conns(limit int, pool, backend string) []l4.Conn {
	return l4.Oldest(loop.Gather(s.Loops, loopPatience, func(i int) []l4.Conn {
		return s.workers[i].Oldest(limit, pool, backend)
	}), limit)
}
