package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Limits of what the clients of one listener may cost together.
const (
	// mostAnswers is how many bytes of answers may wait for their readers.
	mostAnswers = 32 << 20
	// leastPlaces is enough for both turns, a probe and a newcomer.
	leastPlaces = 4
)

// A door is a listener with a number of places. If all are taken the client that has
// been waited for the longest gives way to the next one: it has sent nothing, or half
// a request, or does not read its answer. So clients without end keep none out.
//
// Refusing newcomers instead would let a few idle clients lock out the probes that
// decide whether this host gets traffic.
type door struct {
	net.Listener
	places func() int  // may change; leastPlaces if it is less
	count  func(n int) // is told how many descriptors more (or fewer) are in use

	mu       sync.Mutex // guards the following, and the fields of every visitor
	visitors map[*visitor]struct{}
	waits    uint64 // numbers waits in the order in which they begin
	answers  int    // bytes that visitors hold
}

// A visitor is the connection of one client.
type visitor struct {
	net.Conn
	door *door

	// Guarded by door.mu.
	wait   uint64 // since when its client is waited for; 0 = it is being served
	answer int    // bytes of the answer that it is sent
}

// Accept is part of net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if v := d.admit(c); v != nil {
			return v, nil
		}
		_ = c.Close() // every place is being served: nothing is left to give way
	}
}

// admit gives c a place, or returns nil.
func (d *door) admit(c net.Conn) *visitor {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.visitors) >= max(d.places(), leastPlaces) {
		if !d.evictLocked(func(*visitor) bool { return true }) {
			return nil
		}
	}
	v := &visitor{Conn: c, door: d}
	d.visitors[v] = struct{}{}
	d.count(1)
	v.waitLocked()
	return v
}

// evictLocked closes the connection of that visitor, of those that may go, whose client
// has been waited for the longest. It reports whether there is one.
func (d *door) evictLocked(may func(*visitor) bool) bool {
	var oldest *visitor
	for v := range d.visitors {
		if v.wait != 0 && may(v) && (oldest == nil || v.wait < oldest.wait) {
			oldest = v
		}
	}
	if oldest == nil {
		return false
	}
	oldest.leaveLocked()
	_ = oldest.Conn.Close() // what reads or writes it ends with an error
	return true
}

func (v *visitor) leaveLocked() {
	if _, here := v.door.visitors[v]; !here {
		return
	}
	delete(v.door.visitors, v)
	v.door.count(-1)
	v.door.answers -= v.answer
	v.answer = 0
}

// Close is part of net.Conn.
func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.leaveLocked()
	v.door.mu.Unlock()
	return v.Conn.Close()
}

func (v *visitor) waitLocked() {
	v.door.waits++
	v.wait = v.door.waits
}

// waiting says that the client is to do something next.
func (v *visitor) waiting() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	v.waitLocked()
}

// serving says that the client waits for us, and must not be closed.
func (v *visitor) serving() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	v.wait = 0
}

// answering says that the client is to read n bytes. Answers that are not read give way
// to it, if there are too many of them.
func (v *visitor) answering(n int) {
	d := v.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, here := d.visitors[v]; !here {
		return
	}
	v.waitLocked()
	v.answer = n
	d.answers += n
	for d.answers > mostAnswers {
		if !d.evictLocked(func(o *visitor) bool { return o != v && o.answer > 0 }) {
			return
		}
	}
}

// answered says that the answer has gone out. What comes next is either another
// request, which net/http waits for, or the end.
func (v *visitor) answered() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	v.door.answers -= v.answer
	v.answer = 0
}

type visitorKey struct{}

// visitorContext lets handlers find the visitor; see visitorOf.
func visitorContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// visitorOf returns who sent r, which must have come in through a door.
func visitorOf(r *http.Request) *visitor { return r.Context().Value(visitorKey{}).(*visitor) }
