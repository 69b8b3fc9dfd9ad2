package udp

// sessionList is an intrusive list of sessions. A session can be in one of each kind.
type sessionList struct {
	first, last *session // the youngest, the oldest
	kind        listKind
}

type listKind uint8

const (
	every   listKind = iota // worker.sessions
	special                 // receiver.unconfirmed while it is open, worker.leaving afterwards
	keeping                 // worker.keepers
	numListKinds
)

// A link is a session's place in a list.
type link struct{ prev, next *session } // the younger, the older

func (l *sessionList) push(s *session) {
	s.links[l.kind] = link{nil, l.first}
	if l.first != nil {
		l.first.links[l.kind].prev = s
	} else {
		l.last = s
	}
	l.first = s
}

func (l *sessionList) remove(s *session) {
	at := &s.links[l.kind]
	if at.prev != nil {
		at.prev.links[l.kind].next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		at.next.links[l.kind].prev = at.prev
	} else {
		l.last = at.prev
	}
	*at = link{}
}
