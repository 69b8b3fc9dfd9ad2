package admit

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/poise-lb/poise/l4"
)

// A source is a masked address in its sixteen bytes, IPv4 as mapped into IPv6:
// comparable, and without the pointer of a netip.Addr, so that the collector need
// not walk tables of them.
type source struct{ hi, lo uint64 }

// masks say which bits of an address make the source.
type masks struct {
	hi6, lo6 uint64
	lo4      uint64
}

// newMasks keeps so many leading bits of IPv4 and IPv6 addresses; 0 means all.
func newMasks(bits4, bits6 int) masks {
	if bits4 == 0 {
		bits4 = 32
	}
	if bits6 == 0 {
		bits6 = 128
	}
	// A shift by 64 bits or more leaves nothing.
	return masks{
		hi6: ^(^uint64(0) >> bits6),
		lo6: ^(^uint64(0) >> max(bits6-64, 0)),
		lo4: ^(^uint64(0) >> (32 + bits4)),
	}
}

// source masks a. The zone of a link-local address does not count: it is the
// interface of this host, and nothing the client has a choice in.
func (m masks) source(a netip.Addr) source {
	b := a.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if hi == 0 && lo>>32 == 0xffff {
		return source{0, lo & m.lo4}
	}
	return source{hi & m.hi6, lo & m.lo6}
}

const (
	shards   = 64
	maxIdle  = 1 << 18 // sources with nothing open that are remembered
	idleEach = maxIdle / shards
)

// A table knows what sources have open and what they have used of their rate.
type table struct {
	masks  masks
	seed   [2]uint64 // secret, or a stranger could choose addresses that meet in one shard
	shards [shards]shard
}

func newTable(m masks) *table {
	return &table{masks: m, seed: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// find returns the source of a, its shard and its place there.
func (t *table) find(a netip.Addr) (source, *shard, uint32) {
	s := t.masks.source(a)
	h := s.hash(t.seed)
	return s, &t.shards[h>>58], uint32(h)
}

// hash is two folded multiplications, as in wyhash (Wang Yi, 2019).
func (s source) hash(seed [2]uint64) uint64 {
	hi, lo := bits.Mul64(s.hi^seed[0], s.lo^seed[1])
	hi, lo = bits.Mul64(hi^lo^seed[1], 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// admit is Policy.Admit from the third check on.
func (t *table) admit(a netip.Addr, now int64, p *Policy) l4.Outcome {
	src, s, hash := t.find(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	var used int64
	var open int32
	i := s.lookup(src, hash)
	if i != 0 {
		used, open = s.entries[i].used, s.entries[i].open
	}
	used, ok := p.source.next(used, now)
	switch {
	case !ok: // so the source is known: a new one has all of its allowance
		s.entries[i].used = used
		return l4.RefusedRate
	case !p.shared.rate.has(p.rate, now):
		return l4.RefusedRate
	case p.perSource > 0 && open >= p.perSource:
		return l4.RefusedLimit
	case !p.shared.rate.take(p.rate, now): // others were faster
		return l4.RefusedRate
	}
	if i == 0 {
		if p.source.unlimited() {
			s.forget(math.MaxInt64) // what an older policy's limit has left
		} else {
			s.forget(now)
		}
		i = s.insert(src, hash)
	}
	e := &s.entries[i]
	e.used = used
	switch {
	case p.counts:
		s.enter(i)
	case e.open == 0:
		if e.newer != none {
			s.unlink(i)
		}
		s.link(i)
	}
	return l4.OK
}

// adopt adds one to what a has open.
func (t *table) adopt(a netip.Addr) {
	src, s, hash := t.find(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.lookup(src, hash)
	if i == 0 {
		i = s.insert(src, hash)
	}
	s.enter(i)
}

// release takes one off what a has open. It reports false if that is nothing.
func (t *table) release(a netip.Addr) bool {
	src, s, hash := t.find(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.lookup(src, hash)
	if i == 0 || s.entries[i].open == 0 {
		return false
	}
	e := &s.entries[i]
	if e.open--; e.open > 0 {
		return true
	}
	if e.used == 0 { // no rate: nothing to remember
		s.remove(i)
		return true
	}
	s.link(i)
	return true
}

// open reports whether any source has something open.
func (t *table) open() bool {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		open := s.used > s.idle
		s.mu.Unlock()
		if open {
			return true
		}
	}
	return false
}
