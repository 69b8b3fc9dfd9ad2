package tcp

import (
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/l4"
)

// Loops must not write logs, which may block. They post notices, at most one a
// second of each kind and service, to a goroutine that does.
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
	noticeQueueFull
	noticeQueueTimeout
	noticeServiceFull
	noticeAccept
	noticeNoLocalPort
	noticeNoDescriptors
	noticeBadProxy
	noticeBadHello
	noticeHandshakes
	noticeHandshake
	noticeBackendTLS
	noticeReplay
	numNoticeKinds
)

var noticeTexts = [numNoticeKinds]string{
	"connection refused: no eligible backend",
	"connection refused: every eligible backend is at max_connections",
	"connection refused: every eligible backend is at max_connections and the queue is full",
	"connection refused: no backend had room within queue.timeout",
	"connection refused: service is at max_connections",
	"accepting is paused",
	"connection refused: no free local port towards the backend",
	"connection refused: out of file descriptors or socket memory",
	"connection closed: bad PROXY header from a trusted peer",
	"connection closed: bad TLS ClientHello",
	"connection refused: tls.max_handshakes are under way",
	"connection closed: TLS handshake with the client failed",
	"TLS handshake with a backend failed",
	"backend ended without a word: what the client has sent goes to another one",
}

// detailKey says what the detail of a notice is.
func (k noticeKind) detailKey() string {
	switch k {
	case noticeAccept, noticeBadProxy, noticeBadHello, noticeHandshake, noticeBackendTLS:
		return "reason"
	case noticeReplay:
		return "backend"
	}
	return "pool"
}

// noticeOf maps the outcomes an operator should hear of.
func noticeOf(o l4.Outcome) (noticeKind, bool) {
	switch o {
	case l4.NoBackend:
		return noticeNoBackend, true
	case l4.QueueFull:
		return noticeQueueFull, true
	case l4.QueueTimeout:
		return noticeQueueTimeout, true
	case l4.NoLocalPort:
		return noticeNoLocalPort, true
	case l4.NoDescriptors:
		return noticeNoDescriptors, true
	}
	return 0, false
}

type noticeGate struct {
	at      atomic.Int64 // unix nanoseconds of the last one let through
	skipped atomic.Uint64
}

func (s *Server) notify(svc *Service, kind noticeKind, detail string) {
	gate := &svc.noticed[kind]
	now := time.Now().UnixNano()
	if last := gate.at.Load(); now-last < int64(time.Second) || !gate.at.CompareAndSwap(last, now) {
		gate.skipped.Add(1)
		return
	}
	select {
	case s.notices <- notice{kind, svc.Name, detail, gate.skipped.Swap(0)}:
	default: // the log is stuck; counters tell the story
	}
}

// logNotices runs until notices is closed.
func (s *Server) logNotices() {
	for n := range s.notices {
		args := []any{"service", n.service}
		if n.detail != "" {
			args = append(args, n.kind.detailKey(), n.detail)
		}
		if n.skipped > 0 {
			args = append(args, "more_since_last", n.skipped)
		}
		s.log.Warn(noticeTexts[n.kind], args...)
	}
}
