package udp

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/notice"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/wire"
)

// Service is the part of a UDP service that outlives its configuration: its counters
// and open sessions.
type Service = service.Service[ServiceStats]

// ServiceStats are counters that never fall. Of the Outcomes that mean a client was
// refused they count datagrams, each of which was one more attempt to begin a session.
// Retries are further backends that have got a session's requests.
type ServiceStats struct {
	service.Stats
	Sessions                  atomic.Uint64 // that reached a backend
	DatagramsIn, DatagramsOut atomic.Uint64 // as BytesIn and BytesOut; those that were dropped are in Dropped instead
	Dropped                   [NumDropReasons]atomic.Uint64

	sampled [l4.NumOutcomes]notice.Gate // what Hooks.Ended hears of refused clients
}

// DropReason says why a datagram did not go on. The list is closed.
type DropReason uint8

// The reasons, whichever the direction.
const (
	DropRefused    DropReason = iota // no session could be made; Outcomes says why
	DropTooLarge                     // larger than what came in whole, or than may be sent (with its PROXY header)
	DropBufferFull                   // the socket it should leave by is full
	DropSendFailed                   // the kernel would not send it: no route, a firewall
	DropOverflow                     // it came faster than it was taken (or broken): the kernel dropped it
	DropLoop                         // its source is a socket of this process, or a backend of the pool: see goesRound
	numDropReasons
)

// dropReason says why a datagram was lost that the kernel did not take.
func dropReason(err sock.Errno) DropReason {
	switch err {
	case sock.EAGAIN:
		return DropBufferFull
	case sock.EMSGSIZE:
		return DropTooLarge
	}
	return DropSendFailed
}

// NumDropReasons is the length of the closed list.
const NumDropReasons = int(numDropReasons)

var dropReasonNames = [numDropReasons]string{"refused", "too_large", "buffer_full", "send_failed", "overflow", "loop"}

// String returns the metric label.
func (r DropReason) String() string {
	if r < numDropReasons {
		return dropReasonNames[r]
	}
	return "unknown"
}

// A route is what a listener does with datagrams. It is immutable; a reload gives
// the listener another one, which sessions take up with their client's next datagram.
type route struct {
	Route
	service *Service
	ports   *ports // of Source
}

// leadsTo reports whether sessions of both routes go to the same place by the same
// way.
func (r *route) leadsTo(o *route) bool {
	return r.Pool == o.Pool && r.Source == o.Source && r.Transparent == o.Transparent &&
		r.Spec.Spray == o.Spec.Spray && r.SendProxy == o.SendProxy && slices.EqualFunc(r.ProxyTLVs, o.ProxyTLVs, sameTLV)
}

func sameTLV(a, b wire.TLV) bool { return a.Type == b.Type && bytes.Equal(a.Value, b.Value) }

// overflow counts what the socket has lost since it had lost so many; see
// Server.Flush.
func (s *ServiceStats) overflow(fd int, seen *uint32) {
	now := sock.Overflowed(fd)
	s.drop(DropOverflow, uint64(now-*seen))
	*seen = now
}

// drop counts datagrams that do not go on.
func (s *ServiceStats) drop(r DropReason, n uint64) { s.Dropped[r].Add(n) }
