package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// datapath is TCP and UDP together, on the same loops and out of one budget of
// descriptors: most of what the daemon wants concerns both.
type datapath struct {
	loops loop.Group
	tcp   *tcp.Server
	udp   *udp.Server

	descriptors *sock.Descriptors
}

// startDatapath makes n loops and the servers on them.
func (d *Daemon) startDatapath(n int, log *slog.Logger) (datapath, error) {
	loops, err := loop.Start(n)
	if err != nil {
		return datapath{}, err
	}
	descriptors := new(sock.Descriptors)
	return datapath{
		loops:       loops,
		descriptors: descriptors,

		tcp: tcp.NewServer(loops, descriptors, log, tcp.Hooks{Connected: d.connected, Fared: d.fared, Ended: d.ended}),
		udp: udp.NewServer(loops, descriptors, log, udp.Hooks{Began: d.began, Answered: d.answered, Refused: d.refused, Ended: d.ended}),
	}, nil
}

// close ends everything at once.
func (p datapath) close() {
	p.tcp.Close()
	p.udp.Close()
	p.loops.Stop()
}

// healthy reports whether every loop takes its turn within limit.
func (p datapath) healthy(limit time.Duration) bool {
	return p.loops.Within(limit, func(int) {})
}

// conns returns at most limit open connections and sessions, the oldest first; see
// tcp.Server.Conns.
func (p datapath) conns(limit int, pool, backend string) []l4.Conn {
	return l4.Oldest(append(p.tcp.Conns(limit, pool, backend), p.udp.Conns(limit, pool, backend)...), limit)
}

// active is how many connections and sessions are open.
func (p datapath) active() int64 { return p.tcp.Active() + p.udp.Active() }

// flush brings the counters of bytes and datagrams up to date.
func (p datapath) flush() {
	p.tcp.Flush()
	p.udp.Flush()
}

func (p datapath) closeBackend(b *balance.Backend, o l4.Outcome, spread time.Duration) {
	p.tcp.CloseBackend(b, o, spread)
	p.udp.CloseBackend(b, o, spread)
}

// repeat has other backends asked what b, which has gone down, has not answered.
func (p datapath) repeat(b *balance.Backend) { p.udp.Repeat(b) }

func (p datapath) kill(o l4.Outcome) {
	p.tcp.Kill(o)
	p.udp.Kill(o)
}

// stopAccepting returns when nobody new can come in.
func (p datapath) stopAccepting() {
	var both sync.WaitGroup
	both.Go(p.tcp.StopAccepting)
	both.Go(p.udp.StopAccepting)
	both.Wait()
}

// A routing is a change of what both are to do.
type routing struct {
	tcp *tcp.Change
	udp *udp.Change
}

// prepare binds what is new. Until commit or abort no other change can be prepared.
func (p datapath) prepare(t []tcp.Route, u []udp.Route) (r routing, err error) {
	var tcpErr, udpErr error
	r.tcp, tcpErr = p.tcp.Prepare(t)
	r.udp, udpErr = p.udp.Prepare(u)
	if err = errors.Join(tcpErr, udpErr); err != nil {
		r.abort()
		return routing{}, err
	}
	return r, nil
}

func (r routing) abort() {
	if r.tcp != nil {
		r.tcp.Abort()
	}
	if r.udp != nil {
		r.udp.Abort()
	}
}

// commit lets both do it, and returns when they do.
func (r routing) commit() {
	var both sync.WaitGroup
	both.Go(r.tcp.Commit)
	both.Go(r.udp.Commit)
	both.Wait()
}
