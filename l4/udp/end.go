package udp

import (
	"net/netip"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
)

// takeUp makes a route of a later configuration the session's; it reports false if
// that leads elsewhere. Where the listener is another service's now, or the service has
// another name, it stays its first one's, as a connection does.
func (s *session) takeUp(r *route) bool {
	if !s.route.leadsTo(r) {
		return false
	}
	s.offered = r
	if s.route.service == r.service {
		s.route = r
		s.worker.loop.Start(&s.timer, r.Spec.Idle)
	}
	return true
}

// welcome reports whether the session's backend still gets its datagrams.
func (s *session) welcome() bool {
	b := s.lease.Backend()
	flags, weight := b.Flags(), b.Weight()
	switch {
	case flags == 0 && weight > 0:
		return true
	case flags&^(balance.Down|balance.Ejected) == 0 && weight > 0:
		return s.route.Pool.Panicking() // nobody goes by these two then
	case flags&^balance.Drained == 0:
		// The operator wants it to finish what it is doing. A client that gets no
		// answers would never be finished.
		return s.firstByte != l4.Unreached && s.worker.loop.Now()-s.lastReply < s.route.Spec.Idle
	}
	return false
}

// replace ends a session whose client has sent something that cannot go to its
// backend, and returns another one in its place; nil if none can be made.
func (s *session) replace(route *route) *session {
	r, client, flow, admitted := s.receiver, s.client, s.flow, s.admitted
	s.leave(l4.BackendDown, l4.Proxy)
	if s.route.service != route.service {
		s.dismiss()
		return r.newSession(client, route)
	}
	// The client stays admitted: limits that count it already must not refuse it.
	s.admitted = nil
	return r.start(client, flow, route, admitted)
}

// leave ends the session but for late replies. Its client is still counted, and so is
// the session by its backend, which has not done with it.
func (s *session) leave(o l4.Outcome, by l4.Side) {
	w := s.worker
	s.confirm()
	s.forget()
	s.phase, s.outcome, s.by, s.left = leaving, o, by, w.loop.Now()
	w.leaving.push(s)
	delete(s.receiver.sessions, s.client)
	w.loop.Start(&s.timer, s.expects())
}

// depart has an open session leave and its client dismissed.
func (s *session) depart(o l4.Outcome, by l4.Side) {
	s.leave(o, by)
	s.dismiss()
}

// dismiss has the client counted no more.
func (s *session) dismiss() {
	s.admitted.Release(s.flow.Client.Addr())
	s.admitted = nil
	s.route.service.Give()
}

// isDone reports whether the backend has sent all the replies that are due.
func (s *session) isDone() bool {
	return s.replies >= s.in.datagrams*uint64(s.route.Spec.Replies)
}

// finishIfDone ends the session if its client has sent nothing more meanwhile.
func (s *session) finishIfDone() {
	s.waits = false
	if s.phase != closed && s.route.Spec.Replies > 0 && s.isDone() {
		s.end(l4.OK, l4.Backend)
	}
}

// Expired is the idle limit, or the end of the time for late replies. Activity never
// touches the timer: when it runs out early it is set anew.
func (s *session) Expired(*loop.Timer) {
	w := s.worker
	if s.phase == leaving {
		s.end(s.outcome, s.by)
		return
	}
	if left := s.last + s.route.Spec.Idle - w.loop.Now(); left > 0 {
		w.loop.Start(&s.timer, left)
		return
	}
	if s.told == refuses && s.asks { // no socket listens there any more
		s.depart(l4.Idle, l4.Backend)
		return
	}
	if s.firstByte != l4.Unreached {
		if s.owed() {
			s.depart(l4.OK, l4.Proxy)
		} else {
			s.end(l4.OK, l4.Proxy)
		}
		return
	}
	if s.told == untold {
		// It has taken all the client had to say, and the protocol has no answers.
		// One that hangs looks the same: for that there are active checks.
		s.tell(answers)
	}
	s.depart(l4.Idle, l4.Backend)
}

// end closes the session's socket, accounts for it and reports it. No datagram of it
// may be waiting in a tray.
func (s *session) end(o l4.Outcome, by l4.Side) {
	w := s.worker
	switch s.phase {
	case closed:
		return
	case open:
		s.confirm()
		s.forget()
		s.left = w.loop.Now()
		delete(s.receiver.sessions, s.client)
		s.dismiss()
	case leaving:
		o, by = s.outcome, s.by
		w.leaving.remove(s)
	}
	s.phase = closed
	w.loop.StopTimer(&s.timer)
	s.flushCounts()
	s.hangUp(s.connection, s.backend())
	s.report(o, by)
	s.lease.Release()
	l := s.receiver.listener
	w.release(s)
	l.Leave()
}

// hangUp closes the session's connection to a backend. Its port rests while that may
// still reply.
func (s *session) hangUp(c connection, backend netip.AddrPort) {
	w := s.worker
	w.loop.Remove(int(c.fd))
	w.closeSocket(int(c.fd), c.local, backend)
	w.server.Descriptors.GiveShare(1)
	w.server.rests.add(c.local, backend, s.expects())
	c.givePort()
}

// flushCounts adds what has been moved since the last time to the counters.
func (s *session) flushCounts() {
	count(&s.in, &s.out, s.lease.Backend())
	if s.bursts { // no other loses anything
		s.route.service.Stats.overflow(int(s.fd), &s.lost)
	}
}

func count(in, out *traffic, b *balance.Backend) {
	datagramsIn, bytesIn := in.news()
	datagramsOut, bytesOut := out.news()
	st := &in.service.Stats
	if datagramsIn != 0 {
		st.DatagramsIn.Add(datagramsIn)
		st.BytesIn.Add(bytesIn)
		b.Stats.BytesIn.Add(bytesIn)
	}
	if datagramsOut != 0 {
		st.DatagramsOut.Add(datagramsOut)
		st.BytesOut.Add(bytesOut)
		b.Stats.BytesOut.Add(bytesOut)
	}
}

// report counts the outcome and hands out the Session. The lease is still held, so
// that the session is among those it counts.
func (s *session) report(o l4.Outcome, by l4.Side) {
	w, svc, b := s.worker, s.route.service, s.lease.Backend()
	total := s.left - s.start
	svc.Stats.Outcomes[o].Add(1)
	svc.Stats.Duration.Observe(total)
	if w.server.hooks.Ended == nil {
		return
	}
	w.session = l4.Session{
		Service: svc.Name, Pool: s.route.Pool.Name(), Backend: b.Name(),
		Flow:      s.flow,
		Start:     time.Now().Add(s.start - w.loop.Now()),
		Wait:      s.chosen - s.start,
		FirstByte: s.firstByte, Total: total, Retries: int(s.retries),
		BytesIn: s.in.bytes, BytesOut: s.out.bytes, DatagramsIn: s.in.datagrams, DatagramsOut: s.out.datagrams,
		Outcome: o, By: by, Strategy: s.lease.Strategy(),
		ActConn: w.server.Active() + 1, SvcConn: svc.Active() + 1, PoolConn: s.route.Pool.Active(),
		BackendConn: b.Active(),
	}
	w.server.hooks.Ended(&w.session)
}

// refuse accounts for a datagram for which no session could be made.
func (w *worker) refuse(f l4.Flow, r *route, o l4.Outcome) {
	svc := r.service
	w.refusal = o
	svc.Stats.Outcomes[o].Add(1)
	if kind, ok := noticeOf(o); ok {
		svc.Notify(kind, r.Pool.Name())
	}
	if w.server.hooks.Ended == nil || !svc.Stats.sampled[o].Pass() {
		return
	}
	w.session = l4.Session{
		Service: svc.Name, Pool: r.Pool.Name(), Flow: f, Start: time.Now(),
		Wait: l4.Unreached, Connect: l4.Unreached, FirstByte: l4.Unreached,
		Outcome: o, By: l4.Proxy,
		ActConn: w.server.Active(), SvcConn: svc.Active(), PoolConn: r.Pool.Active(),
	}
	w.server.hooks.Ended(&w.session)
}
