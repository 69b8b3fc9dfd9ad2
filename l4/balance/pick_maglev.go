package balance

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/poise-lb/poise/l4"
)

// maglev maps each flow to a member by a hash of its source, so that the same
// client comes back to the same backend, and a change of the set moves few others.
// It is the lookup table of Eisenbud et al., "Maglev: A Fast and Reliable Software
// Network Load Balancer" (NSDI 2016), section 3.4: each member has its own
// permutation of the slots, and members take turns, as many as their weights say,
// to claim the next free slot of theirs.
//
// The table is a function of the set of (address, weight) and of nothing else: not of
// what backends are called, the order of the list, what was up or down before, the
// pool's name or the process, so that both boxes of a pair, and a box before and after
// its restart, map alike (decision 0008).
//
// With a bound, a member that already has bound times its fair share of the load
// passes flows on along the table: Mirrokni, Thorup and Zadimoghaddam, "Consistent
// Hashing with Bounded Loads" (2018).
type maglev struct {
	members []Member // in the table's own order
	table   []uint32 // indices of members
	loads   []*Load
	hash    HashSpec
	seed    uint64
	weight  float64 // sum of the members'
}

const (
	// maglevSlots is the paper's larger prime: with 655 members each still has
	// 100 slots, its share true to 1 %.
	maglevSlots = 65537
	// maglevSeed and the pool's Seed key the hash of flows. It is fixed because both
	// boxes of a pair must agree, and differs from those of other users of l4.HashAddr.
	maglevSeed = 0x6d61676c65760001
)

// seat is a member with what places it in the table.
type seat struct {
	Member
	digest     [sha256.Size]byte
	slot, skip uint32 // the next slot to claim, and the stride to the one after
}

var maglevAlgorithm = Algorithm{Word: "maglev", New: newMaglev, ByHash: true}

func newMaglev(b Build) Picker {
	seats := make([]seat, len(b.Members))
	for i, m := range b.Members {
		d := digest(m.Addr())
		seats[i] = seat{
			Member: m,
			digest: d,
			slot:   uint32(binary.BigEndian.Uint64(d[0:]) % maglevSlots),
			skip:   uint32(binary.BigEndian.Uint64(d[8:])%(maglevSlots-1)) + 1,
		}
	}
	slices.SortFunc(seats, func(a, b seat) int {
		return cmp.Or(bytes.Compare(a.digest[:], b.digest[:]), strings.Compare(a.Name(), b.Name()))
	})

	p := &maglev{hash: b.Hash, seed: maglevSeed ^ b.Seed, members: make([]Member, len(seats)), loads: make([]*Load, len(seats))}
	for i, s := range seats {
		p.members[i] = s.Member
		p.loads[i] = b.Members[i].load // in their order in memory
		p.weight += float64(s.Weight)
	}
	if len(seats) > 0 {
		p.table = maglevTable(seats)
	}
	return p
}

// digest places a backend. It is named by its address twice, as one is that has no
// other name in the configuration: those are where they were when names counted.
func digest(a Address) [sha256.Size]byte {
	text := a.String()
	return sha256.Sum256([]byte("maglev\x00" + text + "\x00" + text))
}

func maglevTable(seats []seat) []uint32 {
	order := newTurns(len(seats))
	for i, s := range seats {
		// Half a period, whatever the others are: taking one away must leave
		// the order of the rest as it was.
		order.add(i, uint64(s.Weight), turnUnit/2)
	}
	table := make([]uint32, maglevSlots)
	// Most probes hit claimed slots: about 11 for each claim. A bitmap keeps
	// them in the nearest cache.
	var claimed [(maglevSlots + 63) / 64]uint64
	for range table {
		i := order.next()
		s := &seats[i]
		slot := s.slot
		for claimed[slot/64]&(1<<(slot%64)) != 0 {
			if slot += s.skip; slot >= maglevSlots {
				slot -= maglevSlots
			}
		}
		claimed[slot/64] |= 1 << (slot % 64)
		table[slot] = i
		s.slot = slot
	}
	return table
}

func (p *maglev) Pick(f l4.Flow, skip func(*Backend) bool) *Backend {
	if len(p.members) == 0 {
		return nil
	}
	h := p.key(f)
	if p.hash.Bound > 0 {
		if b := p.walk(h, skip, p.bound()); b != nil {
			return b
		}
	}
	return p.walk(h, skip, 0)
}

// key hashes what HashSpec leaves of the client's address.
func (p *maglev) key(f l4.Flow) uint64 {
	addr, port := f.Client.Addr().Unmap(), uint16(0)
	keep := p.hash.Mask6
	if addr.Is4() {
		keep = p.hash.Mask4
	}
	if keep > 0 && keep < addr.BitLen() {
		addr = masked(addr, keep)
	}
	if p.hash.Port {
		port = f.Client.Port()
	}
	return l4.HashAddr(addr, port, p.seed)
}

func masked(a netip.Addr, keep int) netip.Addr {
	prefix, err := a.Prefix(keep)
	if err != nil { // keep is in range
		return a
	}
	return prefix.Addr()
}

// walk goes along the table from the flow's own slot to the first member that is
// neither refused nor at its part of bound (0 = no bound), and then, since a light member may
// be far away, through the members. The same flow walks the same way every time.
func (p *maglev) walk(h uint64, skip func(*Backend) bool, bound float64) *Backend {
	start, _ := bits.Mul64(h, maglevSlots)
	n := uint64(len(p.members))
	for i := range 2 * n {
		m := p.members[p.table[(start+i)%maglevSlots]]
		if p.takes(m, skip, bound) {
			return m.Backend
		}
	}
	for i := range n {
		m := p.members[(start+i)%n]
		if p.takes(m, skip, bound) {
			return m.Backend
		}
	}
	return nil
}

func (p *maglev) takes(m Member, skip func(*Backend) bool, bound float64) bool {
	if bound > 0 && float64(m.load.Active.Load())*p.weight >= bound*float64(m.Weight) {
		return false
	}
	return skip == nil || !skip(m.Backend)
}

// bound returns the load, all flows and the new one times the bound, of which no
// member may reach more than its weight's part. As long as no other flow comes
// between, somebody is below: the parts sum to no less than the load, and the new
// flow is not on anybody yet.
func (p *maglev) bound() float64 {
	load := int64(1)
	for _, c := range p.loads {
		load += c.Active.Load()
	}
	return max(p.hash.Bound, 1) * float64(load)
}
