package balance

import "github.com/poise-lb/poise/l4"

// first fills members one after the other, in configured order: the first that is
// not full gets the flow. Few backends are then in use at a time, and the rest can
// sleep. It needs MaxConnections to ever go on to the second.
type first struct{ members []Member }

var firstAlgorithm = Algorithm{Word: "first", New: newFirst, InOrder: true}

func newFirst(b Build) Picker { return &first{b.Members} }

func (p *first) Pick(_ l4.Flow, skip func(*Backend) bool) *Backend {
	for _, m := range p.members {
		if skip == nil || !skip(m.Backend) {
			return m.Backend
		}
	}
	return nil
}
