package health

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// allProber asks several questions, one after the other. All must be answered
// well, and the first that is not says why.
type allProber struct {
	types   []string
	probers []Prober
}

func newAllProber(s Spec, network, address string) Prober {
	p := &allProber{}
	for _, one := range s.All {
		one.Source, one.Proxy = s.Source, s.Proxy
		if prober := one.Prober(network, address); prober != nil {
			p.types, p.probers = append(p.types, one.Type), append(p.probers, prober)
		}
	}
	return p
}

// Probe asks until one answer is bad. The deadline is of all of them together.
func (p *allProber) Probe(ctx context.Context) error {
	n := notesOf(ctx)
	var farewells time.Duration // after answers, and nobody's time to answer
	defer func() { n.answered = time.Now().Add(-farewells) }()
	for i, one := range p.probers {
		began := time.Now()
		res := timed(ctx, one, n.up)
		farewells += time.Since(began) - res.took
		if e := res.certExpires; !e.IsZero() && (n.certExpires.IsZero() || e.Before(n.certExpires)) {
			n.certExpires = e
		}
		if res.err != nil {
			return ofType(p.types[i], res.err)
		}
	}
	return nil
}

// ofType says which check an error is of.
func ofType(typ string, err error) error {
	if errors.Is(err, ErrLocal) {
		return fmt.Errorf("%s: %w", typ, err)
	}
	f := asFailure(err)
	return &Failure{f.Reason, fmt.Errorf("%s: %w", typ, f.Err)}
}
