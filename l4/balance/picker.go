package balance

import "github.com/poise-lb/poise/l4"

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

	clock   *clock   // the pool's
	typical *reading // latency over the whole pool, in µs
}

// NewPicker builds a picker. It runs under the pool's mutex, once per change of
// the eligible set, never on the data path.
type NewPicker func(Build) Picker

// byHash are the algorithms whose choice belongs to the flow and not to the
// moment. A backend in slow start gets its part of the flows from them as a
// smaller weight, the same clients each time; from all others see lane.
var byHash = map[string]bool{"maglev": true}

// Algorithms is the whole list, by the name used in configuration.
var Algorithms = map[string]NewPicker{
	"round-robin": newRoundRobin,
	"random":      newRandom,
	"least-conn":  newLeastConn,
	"p2c":         newP2C,
	"maglev":      newMaglev,
	"first":       newFirst,
	"fastest":     newFastest,
	"ewma":        newEWMA,
	"adaptive":    newAdaptive,
}
