package udp

import (
	"net/netip"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/wire"
)

// A sprayer is a worker's socket to one backend of a service whose datagrams are
// balanced one by one. All clients share it, so nothing can come back.
type sprayer struct {
	worker  *worker
	key     sprayKey
	fd      int
	local   netip.AddrPort
	timer   loop.Timer
	idle    time.Duration
	last    time.Duration // a datagram was sent
	in, out traffic       // nothing goes out
	queue   []letter
}

type sprayKey struct {
	service *Service
	backend *balance.Backend
	source  netip.Addr
}

// A letter is one datagram in the tray of requests.
type letter struct{ header, payload []byte }

// spray balances the datagrams in slot i of the tray of requests.
func (w *worker) spray(r *receiver, route *route, client sock.Destination, i int) {
	payload, segment := w.requests.Payload(i), w.requests.segments[i]
	if r.listener.Retired() {
		route.service.Stats.drop(DropRefused, datagrams(len(payload), segment))
		return
	}
	flow := r.flow(client)
	var header []byte
	if route.SendProxy != ProxyOff {
		h := wire.ProxyV2{Datagram: true, Source: flow.Client, Destination: flow.VIP, Custom: route.ProxyTLVs}
		start := len(w.headers)
		w.headers = h.Append(w.headers) // where it was, if it moves, stays as it is
		header = w.headers[start:]
	}
	for {
		n := len(payload)
		if segment > 0 {
			n = min(n, segment)
		}
		if o := w.sprayOne(route, flow, letter{header, payload[:n]}); o != l4.OK {
			route.service.Stats.drop(DropRefused, 1)
			w.refuse(flow, route, o)
		}
		if payload = payload[n:]; len(payload) == 0 {
			return
		}
	}
}

// admitSprayed asks the policy about one datagram; what counts open sessions has none
// to count.
func admitSprayed(route *route, f l4.Flow) l4.Outcome {
	if route.Pool.Eligible() == 0 {
		return l4.NoBackend
	}
	o := route.Admit.Admit(f.Client.Addr())
	if o == l4.OK {
		route.Admit.Release(f.Client.Addr())
	}
	return o
}

// sprayOne admits one datagram and chooses a backend for it.
func (w *worker) sprayOne(route *route, f l4.Flow, m letter) l4.Outcome {
	if o := admitSprayed(route, f); o != l4.OK {
		return o
	}
	lease, err := route.Pool.Acquire(f, nil)
	switch {
	case err == balance.ErrBusy:
		return l4.RefusedLimit
	case err != nil:
		return l4.NoBackend
	}
	defer lease.Release()
	s, o := w.sprayerTo(sprayKey{route.service, lease.Backend(), route.Source}, route.ports)
	if s == nil {
		return o
	}
	if lease.Trial() {
		lease.Report(true, 0) // used up: given back, it would draw one datagram after the other
		w.server.began(lease.Backend())
	}
	if len(s.queue) == 0 {
		w.sprayed = append(w.sprayed, s)
	}
	s.queue = append(s.queue, m)
	s.in.add(1, len(m.payload))
	s.last, s.idle = w.loop.Now(), route.Spec.Idle
	return l4.OK
}

// sprayerTo returns the socket to a backend, or why there is none.
func (w *worker) sprayerTo(k sprayKey, p *ports) (*sprayer, l4.Outcome) {
	if s := w.sprayers[k]; s != nil {
		return s, l4.OK
	}
	if !w.server.Descriptors.Take(1) {
		w.server.Descriptors.Refresh()
		return nil, l4.NoDescriptors
	}
	// Sprayers are few, and no client can make more of them: they have a claim to the
	// ports that are kept from sessions.
	fd, errno := -1, sock.EADDRNOTAVAIL
	if !p.isDry() {
		if fd, errno = sock.ConnectUDP(k.backend.Addr().AddrPort, k.source, false); sock.NoFreePort(errno) {
			p.runDry()
		}
	}
	if errno != 0 {
		w.server.Descriptors.Give(1)
		reason := reasonOf(errno)
		k.backend.Stats.ConnectFailures[reason].Add(1)
		return nil, outcomeOf(reason)
	}
	sock.SetUDPBuffer(fd, socketBuffer)
	sock.Deaf(fd) // at worst what is sent back fills its buffer
	s := &sprayer{worker: w, key: k, fd: fd, local: sock.LocalAddr(fd)}
	s.in.service, s.out.service = k.service, k.service
	s.timer.Owner = s
	w.server.sockets.add(s.local, k.backend.Addr().AddrPort)
	w.sprayers[k] = s
	w.loop.Start(&s.timer, sprayerCheck)
	return s, l4.OK
}

// sprayerCheck is how often a sprayer looks whether it is idle, and at its counters.
const sprayerCheck = time.Second

// forward sends the queue.
func (s *sprayer) forward() {
	m := s.worker.mailer
	var to sock.Destination
	refused := false
	for _, l := range s.queue {
		refused = m.post(s.fd, &s.in, &to, l.header, l.payload, 0) || refused
	}
	s.queue = s.queue[:0]
	if m.send(s.fd) || refused {
		s.key.backend.Stats.ConnectFailures[l4.ConnectRefused].Add(1)
		if f := s.worker.server.hooks.Refused; f != nil {
			f(s.key.backend)
		}
	}
}

func (s *sprayer) flushCounts() {
	b := s.key.backend
	b.Stats.Datagrams.Add(s.in.datagrams - s.in.countedDatagrams)
	count(&s.in, &s.out, b)
}

// Expired closes a sprayer that has been idle.
func (s *sprayer) Expired(*loop.Timer) {
	w := s.worker
	if w.loop.Now()-s.last >= s.idle {
		s.close()
		return
	}
	s.flushCounts()
	w.loop.Start(&s.timer, sprayerCheck)
}

func (s *sprayer) close() {
	w, addr := s.worker, s.key.backend.Addr().AddrPort
	w.loop.StopTimer(&s.timer)
	s.flushCounts()
	w.server.sockets.remove(s.local, addr)
	sock.Close(s.fd)
	// What the backend may send back is for no session that gets the port.
	until := s.last + min(s.idle, slowReply) + lateReplies
	w.server.rests.add(s.local, addr, until-w.loop.Now())
	w.server.Descriptors.Give(1)
	delete(w.sprayers, s.key)
}
