package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/notice"
)

// What an operator hears of, of each service.
const (
	noticeNoBackend = iota
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

var notices = [numNoticeKinds]notice.Kind{
	noticeNoBackend:     {Text: "connection refused: no eligible backend", Key: "pool"},
	noticeBusy:          {Text: "connection refused: every eligible backend is at max_connections", Key: "pool"},
	noticeQueueFull:     {Text: "connection refused: every eligible backend is at max_connections and the queue is full", Key: "pool"},
	noticeQueueTimeout:  {Text: "connection refused: no backend had room within queue.timeout", Key: "pool"},
	noticeServiceFull:   {Text: "connection refused: service is at max_connections"},
	noticeAccept:        {Text: "accepting is paused", Key: "reason"},
	noticeNoLocalPort:   {Text: "connection refused: no free local port towards the backend", Key: "pool"},
	noticeNoDescriptors: {Text: "connection refused: out of file descriptors or socket memory", Key: "pool"},
	noticeBadProxy:      {Text: "connection closed: bad PROXY header from a trusted peer", Key: "reason"},
	noticeBadHello:      {Text: "connection closed: bad TLS ClientHello", Key: "reason"},
	noticeHandshakes:    {Text: "connection refused: tls.max_handshakes are under way"},
	noticeHandshake:     {Text: "connection closed: TLS handshake with the client failed", Key: "reason"},
	noticeBackendTLS:    {Text: "TLS handshake with a backend failed", Key: "reason"},
	noticeReplay:        {Text: "backend ended without a word: what the client has sent goes to another one", Key: "backend"},
}

// noticeOf maps the outcomes an operator should hear of.
func noticeOf(o l4.Outcome) (kind int, ok bool) {
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
