// Package service is what the data paths of all protocols have in common: services,
// the listeners they have, and the way from one configuration to the next.
//
// A protocol says in a Protocol what is its own about a listener, and embeds the Server
// that New makes of it. It gives every service a Route, which is what its listeners do
// with what comes, and every listener a Socket for each worker.
package service

import (
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/notice"
)

// Service is the part of a service that outlives its configuration: what it has open,
// and its counters T.
type Service[T any] struct {
	Name  string // set once
	Stats T

	server  *state // nil if it never serves
	open    l4.Places
	leaving atomic.Bool   // removed from the configuration; its listeners take nothing more
	gates   []notice.Gate // by kind of notice
}

// Stats are the counters of a service that every protocol has. They never fall.
type Stats struct {
	BytesIn, BytesOut atomic.Uint64 // from clients, to clients; see Flush
	Retries           atomic.Uint64 // further backends tried
	Outcomes          [l4.NumOutcomes]atomic.Uint64
	Duration          l4.Histogram // of what reached a backend
}

// state is what a server shares with its services and listeners.
type state struct {
	active  atomic.Int64  // of all services
	vacated chan struct{} // a service or a listener that is to go may be empty by now
	notices *notice.Writer
	kinds   []notice.Kind
}

// look has the server look for what is to go.
func (s *state) look() {
	select {
	case s.vacated <- struct{}{}:
	default: // it is going to look already
	}
}

// Take counts one more client as open, unless limit are; a limit of 0 is none.
func (s *Service[T]) Take(limit int) bool {
	if !s.open.Take(limit) {
		return false
	}
	s.server.active.Add(1)
	return true
}

// Give takes that back.
func (s *Service[T]) Give() {
	s.server.active.Add(-1)
	if s.open.Give() == 0 && s.leaving.Load() {
		s.server.look()
	}
}

// Active returns how many clients are open. It never exceeds the configured limit, not
// even for a moment.
func (s *Service[T]) Active() int64 { return s.open.Taken() }

// Leaving reports whether the service is configured no longer.
func (s *Service[T]) Leaving() bool { return s.leaving.Load() }

// Notify tells the operator of something that has happened to the service; the kind is
// an index of Protocol.Notices.
func (s *Service[T]) Notify(kind int, detail string) {
	s.server.notices.Post(&s.gates[kind], s.server.kinds[kind], s.Name, detail)
}
