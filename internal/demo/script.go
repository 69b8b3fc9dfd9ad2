package demo

import (
	"maps"
	"slices"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// The demonstration's figures. With them each of three equal backends has about
// three connections open and gets 80 a second; one of them ten times slower
// would have 32 open if it went on getting 80.
const (
	loadRate   = 240.0                  // new connections a second
	usualDelay = 40 * time.Millisecond  // a backend's time for an answer
	slowDelay  = 400 * time.Millisecond // and when it is slowed
	fullCycle  = 30 * time.Second       // the whole script, without Options.Duration
)

// Least is the shortest Options.Duration: below it there is nothing to see.
const Least = 2 * time.Second

// scene is one part of the script. Whatever happens to the victim happens at
// its beginning.
type scene struct {
	caption string // what has happened, at most 40 columns
	watch   string // what it shows, at most 66 columns
	share   float64
	act     func(victim *loadgen.Backend) error
}

// fullScript is played in turn; the shares add up to 1. The victim is the first
// backend, so that `first` has a script too.
func fullScript(balance string) []scene {
	behave := func(delay time.Duration) func(*loadgen.Backend) error {
		return func(victim *loadgen.Backend) error {
			victim.Behave(loadgen.Behaviour{Delay: delay})
			return nil
		}
	}
	return []scene{
		{
			caption: "all three answer in 40 ms",
			watch:   evenly[balance],
			share:   0.2,
			act:     behave(usualDelay),
		},
		{
			caption: "db1 slows down to 400 ms",
			watch:   unevenly[balance],
			share:   0.25,
			act:     behave(slowDelay),
		},
		{
			caption: "db1 is killed",
			watch:   "Nobody notices: a refused connect is tried on another backend.",
			share:   0.25,
			act:     (*loadgen.Backend).Stop,
		},
		{
			caption: "db1 is back, as fast as before",
			watch:   "It has to pass three checks in a row before it is trusted again.",
			share:   0.3,
			act: func(victim *loadgen.Backend) error {
				victim.Behave(loadgen.Behaviour{Delay: usualDelay})
				return victim.Revive()
			},
		},
	}
}

// Balances are the algorithms that there is a script for.
func Balances() []string { return slices.Sorted(maps.Keys(evenly)) }

// What each algorithm makes of equal backends.
var evenly = map[string]string{
	"round-robin": "round-robin gives each the next connection in turn.",
	"random":      "random gives each a third in the long run.",
	"least-conn":  "least-conn keeps the open connections level: a third for each.",
	"p2c":         "p2c draws two and takes the one with fewer open connections.",
	"maglev":      "maglev hashes the client's address, here with its port.",
	"first":       "first fills in order: db1 takes all.",
	"fastest":     "fastest takes who answers soonest; equals share.",
	"ewma":        "ewma draws two and takes the one with less latency times load.",
	"adaptive":    "adaptive draws by weight, and nobody has failed: a third for each.",
}

// And of a slow one.
var unevenly = map[string]string{
	"round-robin": "round-robin does not look: connections pile up on db1.",
	"random":      "random does not look: connections pile up on db1.",
	"least-conn":  "Open connections stay level, so db1 gets a tenth of the new ones.",
	"p2c":         "db1 loses most draws: it has more open connections than the others.",
	"maglev":      "maglev does not look: the same clients go to db1, and wait.",
	"first":       "first does not look: db1 takes all, and all wait.",
	"fastest":     "db1 answers late, so it is hardly chosen.",
	"ewma":        "db1 loses its draws: its latency times load is ten times theirs.",
	"adaptive":    "adaptive looks at failures, not at time: connections pile up on db1.",
}
