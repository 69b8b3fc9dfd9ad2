package udp

import (
	"net/netip"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/wire"
)

// Spec is the validated configuration of one UDP service.
type Spec struct {
	Name     string
	Listen   []l4.Listen
	Freebind bool // bind addresses this host does not have (IP_FREEBIND)

	Idle time.Duration // no datagram in either direction, > 0
	// Replies ends a session when its backend has sent so many for each of the
	// client's datagrams; 0 means never.
	Replies int
	// Retry sends what a backend has refused, or not answered when it goes down, to
	// another one, once. It has no effect without Replies; see repeat.go.
	Retry       bool
	MaxSessions int  // 0 = no limit but those of all services; see the package
	Spray       bool // every datagram is balanced by itself and no replies are expected
}

// Route is a service and where its datagrams go.
type Route struct {
	Spec   Spec
	Pool   *balance.Pool
	Source netip.Addr // source address towards backends; zero = the system's choice
	// Transparent makes the client's address the source. It takes CAP_NET_ADMIN and
	// routes that bring the replies back here. Datagrams of a Spray service, and of
	// clients that cannot appear (l4.Flow.CanAppearTo), come from Source.
	Transparent bool
	SendProxy   SendProxy     // which datagrams begin with a PROXY header of version 2
	ProxyTLVs   []wire.TLV    // the header's own fields, beside the addresses
	Admit       *admit.Policy // nil = everybody
}

// SendProxy says which datagrams to a backend begin with a PROXY header (version 2;
// version 1 knows no UDP).
type SendProxy uint8

// The choices of pools.NAME.send_proxy that concern UDP.
const (
	ProxyOff SendProxy = iota
	// ProxyFirst is the first datagram of each session that the kernel takes. If that
	// is lost on its way the backend never learns who the client is.
	ProxyFirst
	ProxyEach
)
