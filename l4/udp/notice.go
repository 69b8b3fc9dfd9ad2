package udp

import (
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// Loops must not write logs, which may block, nor wait for each other. They post
// notices, at most one a second of each kind and service, to a goroutine that logs
// them, and it closes the listeners that have lost their last session.
type notice struct {
	kind    noticeKind
	service string
	detail  string
	skipped uint64 // the same, not logged since the last one
}

type noticeKind uint8

const (
	noticeNoBackend noticeKind = iota
	noticeBusy
	noticeServiceFull
	noticeUnreachable
	noticeNoLocalPort
	noticeNoDescriptors
	noticeReceive
	numNoticeKinds
)

var noticeTexts = [numNoticeKinds]string{
	"datagram dropped: no eligible backend",
	"datagram dropped: every eligible backend is at max_connections",
	"datagram dropped: service is at max_sessions",
	"datagram dropped: no way to any backend",
	"datagram dropped: no free local port towards the backend (sessions may have three quarters of them)",
	"datagram dropped: out of file descriptors (sessions may have half of them) or socket memory",
	"receiving failed",
}

// detailKey says what the detail of a notice is.
func (k noticeKind) detailKey() string {
	if k == noticeReceive {
		return "reason"
	}
	return "pool"
}

// noticeOf maps the outcomes an operator should hear of.
func noticeOf(o l4.Outcome) (noticeKind, bool) {
	switch o {
	case l4.NoBackend:
		return noticeNoBackend, true
	case l4.ConnectFailed:
		return noticeUnreachable, true
	case l4.NoLocalPort:
		return noticeNoLocalPort, true
	case l4.NoDescriptors:
		return noticeNoDescriptors, true
	}
	return 0, false
}

// A noticeGate lets one a second through.
type noticeGate struct {
	at      atomic.Int64 // unix nanoseconds of the last one let through
	skipped atomic.Uint64
}

func (g *noticeGate) pass() bool {
	now := time.Now().UnixNano()
	if last := g.at.Load(); now-last < int64(time.Second) || !g.at.CompareAndSwap(last, now) {
		g.skipped.Add(1)
		return false
	}
	return true
}

func (s *Server) notify(svc *Service, kind noticeKind, detail string) {
	gate := &svc.noticed[kind]
	if !gate.pass() {
		return
	}
	select {
	case s.notices <- notice{kind, svc.Name, detail, gate.skipped.Swap(0)}:
	default: // the log is stuck; counters tell the story
	}
}

// attend runs until notices is closed.
func (s *Server) attend() {
	for {
		select {
		case <-s.vacated:
			s.closeAllVacant()
		case n, more := <-s.notices:
			if !more {
				return
			}
			s.write(n)
		}
	}
}

func (s *Server) write(n notice) {
	args := []any{"service", n.service}
	if n.detail != "" {
		args = append(args, n.kind.detailKey(), n.detail)
	}
	if n.skipped > 0 {
		args = append(args, "more_since_last", n.skipped)
	}
	s.log.Warn(noticeTexts[n.kind], args...)
}
