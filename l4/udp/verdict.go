package udp

import "github.com/poise-lb/poise/l4"

// verdict is what the hooks last heard of the backend from this session.
type verdict uint8

const (
	untold verdict = iota
	answers
	refuses
)

// praise tells of a backend that answers.
func (s *session) praise() {
	b := s.lease.Backend()
	if s.firstByte == l4.Unreached {
		s.firstByte = s.lastReply - s.chosen
		s.lease.Report(true, s.firstByte)
		b.Stats.FirstByteTime.Observe(s.firstByte)
	}
	s.tell(answers)
}

// refused tells of an ICMP error: nobody listens at the backend's port.
func (s *session) refused() {
	s.lease.Backend().Stats.ConnectFailures[l4.ConnectRefused].Add(1)
	if s.firstByte == l4.Unreached {
		s.lease.Report(false, 0)
	}
	s.tell(refuses)
	s.schedule()
}

func (s *session) tell(v verdict) {
	s.told = v
	h, b := &s.worker.server.hooks, s.lease.Backend()
	switch {
	case v == refuses && h.Refused != nil:
		h.Refused(b)
	case v == answers && h.Answered != nil:
		h.Answered(b, true)
	}
}
