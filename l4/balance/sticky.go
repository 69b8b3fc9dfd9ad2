package balance

import (
	"net/netip"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4"
)

// stickyTable remembers which backend a source address was given. It is bounded:
// a full shard forgets whom it has not seen for longest. Entries live in slices
// and not behind pointers, so a large table is nothing the collector has to walk
// but for its backends.
//
// Unlike the rest of the data path it takes a lock, one of several; the map it
// guards is the price of remembering.
type stickyTable struct {
	shards []stickyShard
	size   int // of the whole
}

type stickyShard struct {
	mu      sync.Mutex // guards the following
	index   map[netip.Addr]int32
	entries []stickyEntry // a ring, linked in order of use; entry 0 is its anchor
	size    int
	_       [cacheLine]byte
}

type stickyEntry struct {
	source     netip.Addr
	backend    *Backend
	used       time.Time
	next, prev int32 // next: used before, prev: used after
}

const (
	stickyShards   = 64   // for tables that are large enough
	stickyMinShard = 1024 // entries, so that uneven hashing loses little
)

func newStickyTable(size int) *stickyTable {
	n := min(max(size/stickyMinShard, 1), stickyShards)
	t := &stickyTable{shards: make([]stickyShard, n), size: size}
	for i := range t.shards {
		s := &t.shards[i]
		s.size = (size + i) / n // the sizes sum to size
		s.index = map[netip.Addr]int32{}
		s.entries = make([]stickyEntry, 1)
	}
	return t
}

func stickySource(f l4.Flow) netip.Addr { return f.Client.Addr().Unmap().WithZone("") }

func (t *stickyTable) shard(source netip.Addr) *stickyShard {
	return &t.shards[l4.HashAddr(source, 0, 0x737469636b79)%uint64(len(t.shards))]
}

// find returns the backend of a source that came back within ttl, else nil.
func (t *stickyTable) find(source netip.Addr, now time.Time, ttl time.Duration) *Backend {
	s := t.shard(source)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[source]
	if !ok || now.Sub(s.entries[i].used) > ttl {
		return nil
	}
	return s.entries[i].backend
}

// bind remembers that source was given b just now.
func (t *stickyTable) bind(source netip.Addr, b *Backend, now time.Time) {
	s := t.shard(source)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		return
	}
	i, ok := s.index[source]
	switch {
	case ok:
		s.unlink(i)
	case len(s.entries) <= s.size:
		i = int32(len(s.entries))
		s.entries = append(s.entries, stickyEntry{source: source})
		s.index[source] = i
	default: // the one not seen for longest makes room
		i = s.entries[0].prev
		s.unlink(i)
		delete(s.index, s.entries[i].source)
		s.entries[i].source = source
		s.index[source] = i
	}
	e := &s.entries[i]
	e.backend, e.used = b, now
	e.prev, e.next = 0, s.entries[0].next
	s.entries[e.next].prev = i
	s.entries[0].next = i
}

// unlink takes entry i out of the order. s.mu is held.
func (s *stickyShard) unlink(i int32) {
	e := &s.entries[i]
	s.entries[e.prev].next = e.next
	s.entries[e.next].prev = e.prev
}

// len returns how many sources are remembered, expired ones that nobody has asked
// for included.
func (t *stickyTable) len() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.index)
		s.mu.Unlock()
	}
	return n
}

// resized returns a table of another size with the same sources, as far as they
// fit. What others bind in t meanwhile is lost.
func (t *stickyTable) resized(size int) *stickyTable {
	if t.size == size {
		return t
	}
	next := newStickyTable(size)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for i := s.entries[0].prev; i != 0; i = s.entries[i].prev {
			e := &s.entries[i]
			next.bind(e.source, e.backend, e.used)
		}
		s.mu.Unlock()
	}
	return next
}
