package admit

import "sync"

// A shard is a part of a table: a hash table with chaining whose links are
// indices, so it holds no pointers and reuses its entries without allocating.
// Entries with nothing open are in a list by the time that came to be, and are
// forgotten from its old end.
type shard struct {
	mu      sync.Mutex // guards the following
	heads   []int32    // chains of entries, by the low bits of the hash; 0 = none
	entries []entry    // entry 0 is the anchor of the list
	free    int32      // chain of unused entries
	used    int        // entries in chains
	idle    int        // of those, in the list
	_       [64]byte   // neighbours are locked by other cores
}

type entry struct {
	source source
	used   int64 // state of the source's rate
	hash   uint32
	open   int32
	next   int32 // in its chain
	newer  int32 // in the list; none = not in it
	older  int32
}

const none = -1

const firstHeads = 16

func (s *shard) head(hash uint32) *int32 { return &s.heads[hash&uint32(len(s.heads)-1)] }

// lookup returns the index of a source, or 0.
func (s *shard) lookup(src source, hash uint32) int32 {
	if len(s.heads) == 0 {
		return 0
	}
	i := *s.head(hash)
	for i != 0 && s.entries[i].source != src {
		i = s.entries[i].next
	}
	return i
}

// insert adds a source that is not there. It is in no list.
func (s *shard) insert(src source, hash uint32) int32 {
	if s.used == len(s.heads) {
		s.grow()
	}
	i := s.free
	if i != 0 {
		s.free = s.entries[i].next
	} else {
		i = int32(len(s.entries))
		s.entries = append(s.entries, entry{})
	}
	head := s.head(hash)
	s.entries[i] = entry{source: src, hash: hash, next: *head, newer: none}
	*head = i
	s.used++
	return i
}

// grow doubles the chains.
func (s *shard) grow() {
	if len(s.heads) == 0 {
		s.heads = make([]int32, firstHeads)
		s.entries = make([]entry, 1, firstHeads+1)
		return
	}
	old := s.heads
	s.heads = make([]int32, 2*len(old))
	for _, i := range old {
		for i != 0 {
			e := &s.entries[i]
			next, head := e.next, s.head(e.hash)
			e.next, *head = *head, i
			i = next
		}
	}
}

// remove takes entry i, which is in no list, out of its chain.
func (s *shard) remove(i int32) {
	at := s.head(s.entries[i].hash)
	for *at != i {
		at = &s.entries[*at].next
	}
	*at = s.entries[i].next
	s.entries[i].next, s.free = s.free, i
	s.used--
}

// link makes entry i the newest of the list.
func (s *shard) link(i int32) {
	anchor := &s.entries[0]
	e := &s.entries[i]
	e.newer, e.older = 0, anchor.older
	s.entries[e.older].newer = i
	anchor.older = i
	s.idle++
	if s.idle > idleEach {
		s.forgetOldest()
	}
}

// enter adds one to what entry i has open.
func (s *shard) enter(i int32) {
	e := &s.entries[i]
	if e.open++; e.open == 1 && e.newer != none {
		s.unlink(i)
	}
}

// unlink takes entry i out of the list.
func (s *shard) unlink(i int32) {
	e := &s.entries[i]
	s.entries[e.newer].older = e.older
	s.entries[e.older].newer = e.newer
	e.newer = none
	s.idle--
}

func (s *shard) forgetOldest() {
	i := s.entries[0].newer
	s.unlink(i)
	s.remove(i)
}

// forget drops the oldest sources whose rate has recovered by now. Two at a time
// are enough for the table to shrink while sources come, and bound what one of
// them pays for.
func (s *shard) forget(now int64) {
	for range 2 {
		if s.idle == 0 || s.entries[s.entries[0].newer].used > now {
			return
		}
		s.forgetOldest()
	}
}
