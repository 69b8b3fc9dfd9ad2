package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/sock"
)

// An Opener opens the sockets of listeners. Where a service manager has passed sockets
// at an address it uses these, and binds none: one of another user's would not share
// the address. It keeps them for as long as the process runs, as the service manager
// does, so an address that a reload drops can be had again. A nil Opener binds.
type Opener struct {
	passed map[place][]int // in the order they were bound in
}

type place struct {
	proto  l4.Proto
	listen l4.Listen
}

// placeOf returns where a socket is; whether it takes IPv4 clients is part of that for a
// wildcard only.
func placeOf(proto l4.Proto, l l4.Listen) place {
	l.V6Only = l.V6Only && l.Addr.Addr().IsUnspecified()
	return place{proto, l}
}

// String returns the place in the words of the configuration.
func (p place) String() string {
	text := p.listen.String()
	if p.listen.Addr.Addr() == netip.IPv6Unspecified() && !p.listen.V6Only {
		text = fmt.Sprintf(":%d", p.listen.Addr.Port())
	}
	return p.proto.String() + " " + text
}

// NewOpener makes an Opener that owns the sockets.
func NewOpener(sockets []sock.Passed) *Opener {
	o := &Opener{passed: map[place][]int{}}
	for _, p := range sockets {
		proto := l4.UDP
		if p.Stream {
			proto = l4.TCP
		}
		at := placeOf(proto, l4.Listen{Addr: p.Addr, V6Only: p.V6Only})
		o.passed[at] = append(o.passed[at], p.FD)
	}
	return o
}

// Unserved names the sockets that were passed at other addresses than these.
func (o *Opener) Unserved(tcp, udp []l4.Listen) (all []string) {
	if o == nil {
		return nil
	}
	served := map[place]bool{}
	for _, l := range tcp {
		served[placeOf(l4.TCP, l)] = true
	}
	for _, l := range udp {
		served[placeOf(l4.UDP, l)] = true
	}
	for at := range o.passed {
		if !served[at] {
			all = append(all, at.String())
		}
	}
	slices.Sort(all)
	return all
}

// Close closes the sockets that were passed. Listeners that are open have their own
// descriptors.
func (o *Opener) Close() {
	if o == nil {
		return
	}
	for _, fds := range o.passed {
		for _, fd := range fds {
			sock.Close(fd)
		}
	}
}

// passedAt returns the sockets that were passed at an address.
func (s *Server[R, T, S]) passedAt(at l4.Listen) []int {
	if s.Opener == nil {
		return nil
	}
	return s.Opener.passed[placeOf(s.protocol.Proto, at)]
}

// share gives sockets that were passed to the workers: each has its own first. What is
// left has one of the others' where workers can share it, or else -1.
func (s *Server[R, T, S]) share(passed []int, at l4.Listen, p Plan[R, T]) (fds []int, err error) {
	if len(passed) > len(s.workers) {
		return nil, fmt.Errorf("the service manager passes %d sockets for it, and there is one worker for each of %d at most (runtime.workers)",
			len(passed), len(s.workers))
	}
	for i := range s.workers {
		if i >= len(passed) && !s.protocol.Shares {
			fds = append(fds, -1)
			continue
		}
		fd, err := sock.Duplicate(passed[i%len(passed)])
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
		if err := p.Adopt(at, fd); err != nil {
			return fds, err
		}
	}
	return fds, nil
}
