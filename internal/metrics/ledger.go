package metrics

import "slices"

// remembered is how many names that are gone a ledger keeps the totals of. What
// exceeds it is forgotten, oldest first: its counters start at zero if the name
// ever comes again, which is better than memory that grows with every backend
// there ever was.
const remembered = 512

// A ledger keeps totals by name over objects that come and go: several objects
// may share a name (one leaving, one configured), and an object that is gone
// leaves what it has counted to the next of its name. It is what keeps counters
// from falling.
type ledger[K, O comparable, C any] struct {
	read func(o O, before C, gone bool) C // what o has counted; before = what read returned last
	add  func(sum *C, c *C)

	live map[O]*entry[K, C]
	past map[K]*C // the sum of objects that are gone
	gone []K      // the names in past without a live object, the longest gone first
}

type entry[K, C any] struct {
	key  K
	last C
}

func newLedger[K, O comparable, C any](read func(O, C, bool) C, add func(sum, c *C)) *ledger[K, O, C] {
	return &ledger[K, O, C]{read: read, add: add, live: map[O]*entry[K, C]{}, past: map[K]*C{}}
}

// totals reads the objects there are now and returns the totals of their names.
func (l *ledger[K, O, C]) totals(objects map[O]K) map[K]*C {
	for o, e := range l.live {
		if key, ok := objects[o]; ok && key == e.key {
			continue
		}
		last := l.read(o, e.last, true)
		delete(l.live, o)
		l.bequeath(e.key, &last)
	}
	sums := make(map[K]*C, len(objects))
	for o, key := range objects {
		e := l.live[o]
		if e == nil {
			e = &entry[K, C]{key: key}
			l.live[o] = e
		}
		e.last = l.read(o, e.last, false)
		if sums[key] == nil {
			sums[key] = new(C)
			if past := l.past[key]; past != nil {
				l.add(sums[key], past)
			}
		}
		l.add(sums[key], &e.last)
	}
	l.forget(sums)
	return sums
}

// bequeath adds what an object of the name has counted to the name's past.
func (l *ledger[K, O, C]) bequeath(key K, c *C) {
	if l.past[key] == nil {
		l.past[key] = new(C)
	}
	l.add(l.past[key], c)
	if !slices.Contains(l.gone, key) {
		l.gone = append(l.gone, key)
	}
}

// forget drops the pasts that are too many; those of names in use stay.
func (l *ledger[K, O, C]) forget(inUse map[K]*C) {
	l.gone = slices.DeleteFunc(l.gone, func(key K) bool { return inUse[key] != nil })
	for len(l.gone) > remembered {
		delete(l.past, l.gone[0])
		l.gone = l.gone[1:]
	}
}
