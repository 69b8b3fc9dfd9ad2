package balance

import (
	"slices"
	"time"
)

// Spec describes a pool. The zero value of every optional field is its default.
type Spec struct {
	Name      string
	Algorithm string   // a word of Algorithms
	Hash      HashSpec // of algorithms that are ByHash
	Seed      uint64   // of all hashes of clients, see SeedOf; 0 = none
	Backends  []BackendSpec

	// SlowStart is how long a backend that is new, or eligible again, takes to
	// reach its full share of the flows; 0 = it has it at once.
	SlowStart time.Duration
	// Panic is the percentage, 0 to 100, of healthy backends under which the
	// verdicts Down and Ejected are disregarded; 0 = never.
	Panic  int
	Queue  Queue
	Retry  RetryBudget
	AB     *AB     // instead of Algorithm; nil = nothing is compared
	Sticky *Sticky // nil = off
}

// Queue lets flows wait when every eligible backend is at MaxConnections.
type Queue struct {
	Size    int           // how many may wait; 0 = none
	Timeout time.Duration // how long each may; for whoever waits, the pool does not look at it
}

// RetryBudget bounds the retries of a pool so that a failing one is not stormed.
// The zero value is no bound.
type RetryBudget struct {
	Percent int // of the new flows of the last ten seconds
	Floor   int // a second, whatever the flows
}

// AB compares two algorithms on live traffic: each flow gets one of them.
type AB struct {
	A, B  string  // words of Algorithms
	Split float64 // the part of the flows that A gets, 0 to 1
}

// Sticky keeps the flows of one source address on one backend, whatever the
// algorithm, for as long as that is eligible.
type Sticky struct {
	TTL  time.Duration // since the source's latest flow
	Size int           // sources remembered; beyond, those not seen for longest are forgotten
}

// BackendSpec describes one backend of a pool. Name and Addr together are its
// identity; see BackendID.
type BackendSpec struct {
	Name           string
	Addr           Address
	Weight         int  // share of the flows, 0 to 65535; 0 means no new ones
	Backup         bool // used only while no primary is eligible
	MaxConnections int  // leases at once; 0 = no limit
	// Initial flags are given to a backend that this Update creates, or brings
	// back after another had removed it; they are ignored for one that stays.
	Initial Flag
}

// HashSpec says what a consistent hash hashes.
type HashSpec struct {
	Port bool // the client's port counts, beside its address
	// Leading bits of an IPv4 (1 to 32) and an IPv6 (1 to 128) client address
	// that count; 0 = all of them. 24 keeps a whole /24 on one backend.
	Mask4, Mask6 int
	// Bound, at least 1, is how far a backend's load may exceed its fair share
	// before its flows walk on: 1.25 allows a quarter more. 0 = no bound.
	Bound float64
}

// maxWeight is what Member.Weight can hold.
const maxWeight = 1<<16 - 1

func (s BackendSpec) id() BackendID { return BackendID{s.Name, s.Addr} }

// Algorithms are the one or the two that the spec names.
func (s Spec) Algorithms() []Algorithm {
	if s.AB != nil {
		return []Algorithm{Named(s.AB.A), Named(s.AB.B)}
	}
	return []Algorithm{Named(s.Algorithm)}
}

// ByHash reports whether any of them looks at Hash.
func (s Spec) ByHash() bool {
	return slices.ContainsFunc(s.Algorithms(), func(a Algorithm) bool { return a.ByHash })
}

// byLoad reports whether any of them looks at load.
func (s Spec) byLoad() bool {
	return slices.ContainsFunc(s.Algorithms(), func(a Algorithm) bool { return a.ByLoad })
}

// clone returns a copy that shares nothing.
func (s Spec) clone() Spec {
	s.Backends = slices.Clone(s.Backends)
	if s.AB != nil {
		ab := *s.AB
		s.AB = &ab
	}
	if s.Sticky != nil {
		sticky := *s.Sticky
		s.Sticky = &sticky
	}
	return s
}
