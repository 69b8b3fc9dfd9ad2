package udp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/notice"
)

// What an operator hears of, of each service.
const (
	noticeNoBackend = iota
	noticeBusy
	noticeServiceFull
	noticeUnreachable
	noticeNoLocalPort
	noticeNoDescriptors
	noticeReceive
	numNoticeKinds
)

var notices = [numNoticeKinds]notice.Kind{
	noticeNoBackend:     {Text: "datagram dropped: no eligible backend", Key: "pool"},
	noticeBusy:          {Text: "datagram dropped: every eligible backend is at max_connections", Key: "pool"},
	noticeServiceFull:   {Text: "datagram dropped: service is at max_sessions"},
	noticeUnreachable:   {Text: "datagram dropped: no way to any backend", Key: "pool"},
	noticeNoLocalPort:   {Text: "datagram dropped: no free local port towards the backend (sessions may have three quarters of them)", Key: "pool"},
	noticeNoDescriptors: {Text: "datagram dropped: out of file descriptors (sessions may have half of them) or socket memory", Key: "pool"},
	noticeReceive:       {Text: "receiving failed", Key: "reason"},
}

// noticeOf maps the outcomes an operator should hear of.
func noticeOf(o l4.Outcome) (kind int, ok bool) {
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
