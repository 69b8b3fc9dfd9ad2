package balance

import (
	"sync/atomic"

	"github.com/poise-lb/poise/l4"
)

// Member is an eligible backend with the weight it has now. Within a picker
// every weight is positive.
type Member struct {
	*Backend
	Weight uint16
}

// Picker chooses among a fixed set of members. It is immutable but for atomics
// such as a position, and safe for concurrent use.
type Picker interface {
	// Pick returns nil only if there are no members or skip refuses them all.
	// A nil skip refuses nobody; with it, Pick allocates nothing. Pick may ask
	// skip about the same backend more than once.
	Pick(f l4.Flow, skip func(*Backend) bool) *Backend
}

// Build is all that a picker is made from.
type Build struct {
	Members  []Member // in configured order; the picker may keep, not change it
	Hash     HashSpec
	Seed     uint64        // of hashes of clients
	Rand     func() uint64 // uniform over all 64 bits; safe for concurrent use
	Previous Picker        // the one being replaced, nil at first: a place to continue from

	step    *atomic.Uint64 // of a round-robin
	clock   *clock         // the pool's
	typical *reading       // latency over the whole pool, in µs
}

// NewPicker builds a picker. It runs under the pool's mutex, once per change of
// the eligible set, never on the data path.
type NewPicker func(Build) Picker

// Algorithm is what the rest of the house has to know of an algorithm. Its record
// stands with its picker, in pick_NAME.go.
type Algorithm struct {
	Word string // that names it in the configuration
	New  NewPicker

	// ByHash: its choice belongs to the flow and not to the moment, and it looks at
	// Spec.Hash. A backend in slow start gets its part of the flows from it as a
	// smaller weight, the same clients each time; from all others see lane.
	ByHash bool
	// ByLoad: it prefers who has fewer flows open; see catchUp.
	ByLoad bool
	// InOrder: it goes by the order of the list, so that weights say nothing.
	InOrder bool
}

// Algorithms is the whole list, in the order in which they are documented.
var Algorithms = []Algorithm{
	roundRobinAlgorithm, randomAlgorithm, leastConnAlgorithm, p2cAlgorithm, maglevAlgorithm,
	firstAlgorithm, fastestAlgorithm, ewmaAlgorithm, adaptiveAlgorithm,
}

// Named returns the algorithm that the word names. Of any other word it is one without
// New.
func Named(word string) Algorithm {
	for _, a := range Algorithms {
		if a.Word == word {
			return a
		}
	}
	return Algorithm{Word: word}
}
