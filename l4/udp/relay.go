package udp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// takes queues slot i of the tray of requests, which its client has sent.
func (s *session) takes(i int) {
	w := s.worker
	if w.requests.push(&s.queue, i) {
		w.touched = append(w.touched, s)
		s.queued = 0
	}
	size := len(w.requests.Payload(i))
	n := datagrams(size, w.requests.segments[i])
	s.in.add(n, size)
	s.queued += n
	s.last, s.asks = w.loop.Now(), true
	if s.in.datagrams > 1 {
		s.confirm()
	}
	if s.route.Spec.Retry {
		s.keep(w.requests.Payload(i), w.requests.segments[i])
	}
}

// prepareForBursts gives the session's socket what a short exchange does not need and
// should not pay for: a few system calls.
func (s *session) prepareForBursts() {
	if !s.bursts {
		s.bursts = true
		sock.SetUDPBuffer(int(s.fd), socketBuffer)
		sock.SetGRO(int(s.fd))
	}
}

// forward sends the queue to the backend.
func (s *session) forward() {
	in, i := s.worker.requests, s.queue.head()
	if s.queued >= burst {
		s.prepareForBursts()
	}
	var refused bool
	if s.queue.single() && in.segments[i] == 0 && len(s.header) == 0 {
		refused = s.sendOne(in.Payload(i)) // the usual case, the shortest way
	} else {
		refused = s.sendAll()
	}
	s.queue = chain{}
	if refused {
		s.refused()
	}
}

func (s *session) sendOne(payload []byte) (refused bool) {
	_, errno := sock.Write(int(s.fd), payload)
	if errno != 0 && errno != sock.EAGAIN { // perhaps the error of an earlier one, told now
		refused = errno == sock.ECONNREFUSED
		_, errno = sock.Write(int(s.fd), payload)
	}
	if errno != 0 {
		s.in.lose(dropReason(errno), 1, len(payload))
	}
	return refused
}

func (s *session) sendAll() (refused bool) {
	w, fd := s.worker, int(s.fd)
	var to sock.Destination
chain:
	for i := s.queue.head(); i >= 0; i = w.requests.after(i) {
		payload, segment := w.requests.Payload(i), w.requests.segments[i]
		for len(s.header) > 0 {
			n := len(payload)
			if segment > 0 {
				n = min(n, segment)
			}
			sent := s.in.datagrams
			refused = w.mailer.post(fd, &s.in, &to, s.header, payload[:n], 0) || refused
			if s.route.SendProxy == ProxyFirst {
				// It goes alone: if it is lost here, the next one is the first.
				if refused = w.mailer.send(fd) || refused; s.in.datagrams == sent {
					s.header = s.header[:0]
				}
			}
			if payload = payload[n:]; len(payload) == 0 {
				continue chain
			}
		}
		refused = w.mailer.post(fd, &s.in, &to, nil, payload, segment) || refused
	}
	return w.mailer.send(fd) || refused
}

const (
	// replyRoom is how many replies a session can have received with one call, at
	// least, and at most unless it is known for bursts: most have one, and each slot
	// that is offered costs a little.
	replyRoom = 16
	// burst is how many datagrams at once show that a session is one of those that
	// are worth more memory and taking trains.
	burst = 8
)

// Ready takes the backend's replies.
func (s *session) Ready(sock.Events) {
	w := s.worker
	for more := true; more; more = !w.loop.Enough() {
		if w.replies.Len()-w.used < replyRoom {
			w.answer()
		}
		room := w.replies.Len() - w.used
		if !s.bursts || s.out.singly { // what cannot leave as trains is a call a datagram
			room = replyRoom
		}
		n, errno := w.replies.Receive(int(s.fd), w.used, w.used+room)
		switch {
		case errno == sock.EAGAIN:
			return
		case errno != 0: // of a datagram sent earlier; it says nothing of those that are here
			if errno == sock.ECONNREFUSED {
				s.refused()
			}
			continue
		}
		for range n {
			s.answered(w.used)
			w.used++
		}
		if n >= burst {
			s.prepareForBursts()
		}
		if n < room {
			return
		}
	}
	w.loop.Again(int(s.fd), sock.Readable)
}

// answered queues slot i of the tray of replies for the client.
func (s *session) answered(i int) {
	w, r := s.worker, s.receiver
	_, w.replies.segments[i], _ = w.replies.Details(i)
	s.last, s.lastReply, s.asks = w.loop.Now(), w.loop.Now(), false
	s.confirm()
	s.forget()
	if s.firstByte == l4.Unreached || s.told != answers {
		s.praise()
	}
	size := len(w.replies.Payload(i))
	n := datagrams(size, w.replies.segments[i])
	s.replies += n
	if !w.replies.Whole(i) {
		s.route.service.Stats.drop(DropTooLarge, 1)
		return
	}
	s.out.add(n, size)
	w.owners[i] = s
	if w.replies.push(&r.replies, i) {
		w.answering = append(w.answering, r)
	}
	if s.route.Spec.Replies > 0 && !s.waits && s.isDone() {
		s.waits = true
		w.done = append(w.done, s)
	}
}
