package daemon

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/poise-lb/poise/internal/control"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	listening "github.com/poise-lb/poise/l4/service"
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
	opener      *listening.Opener // nil if the service manager has passed no socket; set before start
}

// start makes n loops and the servers on them, which report to c.
func (p *datapath) start(n int, log *slog.Logger, c *control.Control, ended func(*l4.Session)) (err error) {
	if p.loops, err = loop.Start(n); err != nil {
		return err
	}
	p.descriptors = new(sock.Descriptors)
	host := listening.Host{Loops: p.loops, Descriptors: p.descriptors, Log: log, Opener: p.opener}
	p.tcp = tcp.NewServer(host, tcp.Hooks{Connected: c.Connected, Fared: c.Fared, Ended: ended})
	p.udp = udp.NewServer(host, udp.Hooks{Began: c.Began, Answered: c.Answered, Refused: c.Refused, Ended: ended})
	return nil
}

// close ends everything at once.
func (p *datapath) close() {
	p.tcp.Close()
	p.udp.Close()
	p.loops.Stop()
	p.opener.Close()
}

// healthy reports whether every loop takes its turn within limit.
func (p *datapath) healthy(limit time.Duration) bool {
	return p.loops.Within(limit, func(int) {})
}

// conns returns at most limit open connections and sessions, the oldest first; see
// tcp.Server.Conns.
func (p *datapath) conns(limit int, pool, backend string) []l4.Conn {
	return l4.Oldest(append(p.tcp.Conns(limit, pool, backend), p.udp.Conns(limit, pool, backend)...), limit)
}

// active is how many connections and sessions are open.
func (p *datapath) active() int64 { return p.tcp.Active() + p.udp.Active() }

// Flush brings the counters of bytes and datagrams up to date.
func (p *datapath) Flush() {
	p.tcp.Flush()
	p.udp.Flush()
}

// CloseBackend ends what is open to b.
func (p *datapath) CloseBackend(b *balance.Backend, o l4.Outcome, spread time.Duration) {
	p.tcp.CloseBackend(b, o, spread)
	p.udp.CloseBackend(b, o, spread)
}

// Repeat has other backends asked what b, which has gone down, has not answered.
func (p *datapath) Repeat(b *balance.Backend) { p.udp.Repeat(b) }

// Rests reports whether an answer to a session may still come to a port.
func (p *datapath) Rests(local, backend netip.AddrPort) bool { return p.udp.Rests(local, backend) }

// Rest keeps a port from sessions with a backend while an answer to a check may come.
func (p *datapath) Rest(local, backend netip.AddrPort) { p.udp.Rest(local, backend) }

// Connections is how many TCP connections are open.
func (p *datapath) Connections() int64 { return p.tcp.Active() }

// Stalled is how many of the established TCP connections to b retransmit.
func (p *datapath) Stalled(b *balance.Backend) (stalled, established int) { return p.tcp.Stalled(b) }

func (p *datapath) kill(o l4.Outcome) {
	p.tcp.Kill(o)
	p.udp.Kill(o)
}

// stopAccepting returns when nobody new can come in.
func (p *datapath) stopAccepting() {
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
func (p *datapath) prepare(t []tcp.Route, u []udp.Route) (r routing, err error) {
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
