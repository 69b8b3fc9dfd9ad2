package control

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// operated are the flags whose writer is the operator.
const operated = balance.Drained | balance.Maint

// applyOrders makes the pool follow the operator once more after an update: what a
// backend is created with, what a reload has kept and what has been said meanwhile
// come to the same. c.verdicts is held.
func (c *Control) applyOrders(p *Pool, spec balance.Spec) {
	c.operator.reconcile(spec, len(p.Discovery.Names) > 0 || p.Discovery.File != "", time.Now())
	for _, b := range spec.Backends {
		id := balance.BackendID{Name: b.Name, Addr: b.Addr}
		c.operator.due(memberKey(spec.Name, b.Addr)).apply(p.Live, id)
	}
}

// apply makes flags and weight of a backend what they are to be.
func (h Order) apply(p *balance.Pool, id balance.BackendID) {
	due := h.flags()
	p.SetFlag(id, due, true) // first: it must not be ready in between
	p.SetFlag(id, operated&^due, false)
	weight := -1
	if h.Weight != nil {
		weight = *h.Weight
	}
	p.SetWeight(id, weight)
}

// Done is what a command has done.
type Done struct {
	Member   *Member
	Closed   int64    // how many connections were open that it has closed
	Warnings []string // what the operator should know of
}

// SetState applies a state to a backend. The error is admin.NotFound.
func (c *Control) SetState(pool, backend string, r admin.StateRequest) (Done, error) {
	want := r.State
	if want == admin.OperatorReady {
		want = ""
	}
	m, was, err := c.operate(pool, backend, func(_ *Member, o *Order) {
		if o.State != want {
			o.State, o.Since = want, time.Now().Round(0)
		}
		if want == "" {
			o.Since = time.Time{}
		}
	})
	if err != nil {
		return Done{}, err
	}
	done := Done{Member: m}
	if want == admin.OperatorMaint || r.Close && want == admin.OperatorDrain {
		for _, b := range m.Namesakes() {
			done.Closed += b.Active()
			c.data.CloseBackend(b, l4.Drained, 0)
		}
	}
	if was.State != want || done.Closed > 0 {
		c.note(m.Backend, slog.LevelInfo, "backend state is changed", "operator", r.State, "was", was.Word(), "closed", done.Closed)
	}
	if want != "" && m.Pool.Live.Eligible() == 0 {
		done.Warnings = append(done.Warnings, fmt.Sprintf("pool %s has no backend left to send connections to", pool))
	}
	c.keep(&done)
	return done, nil
}

// SetWeight gives a backend a weight in place of the configured one, which nil restores.
// The error is admin.NotFound.
func (c *Control) SetWeight(pool, backend string, weight *int) (Done, error) {
	m, was, err := c.operate(pool, backend, func(m *Member, o *Order) {
		o.Weight, o.FileWeight = weight, 0
		if weight != nil {
			o.FileWeight = m.FileWeight()
		}
	})
	if err != nil {
		return Done{}, err
	}
	if weightText(was.Weight) != weightText(weight) {
		c.note(m.Backend, slog.LevelInfo, "backend weight is changed", "operator", "weight", "weight", weightText(weight),
			"was", weightText(was.Weight), "configured", m.FileWeight())
	}
	done := Done{Member: m}
	c.keep(&done)
	return done, nil
}

func weightText(w *int) string {
	if w == nil {
		return "auto"
	}
	return fmt.Sprint(*w)
}

// operate changes what holds for a backend, at once in the pool, and returns what
// has held before.
func (c *Control) operate(pool, backend string, change func(*Member, *Order)) (m *Member, was Order, err error) {
	find := func(s *Set) *Member {
		m, err = s.Find(pool, backend)
		return m
	}
	c.write(find, func(m *Member) {
		was = c.operator.due(m.key)
		now := was
		now.Pool, now.Backend, now.Address = m.PoolName(), m.Name(), m.Addr().String()
		change(m, &now)
		c.operator.set(m.key, now)
		now.apply(m.Pool.Live, m.ID())
		m.Pool.reckon(m.Backend)
	})
	return m, was, err
}

// Order returns what the operator has said about m.
func (c *Control) Order(m *Member) Order { return c.operator.due(m.key) }

// keep writes what holds to the file; the operator is told if that fails.
func (c *Control) keep(done *Done) {
	if err := c.operator.save(); err != nil {
		c.log.Error("the operator's state is not kept", "error", err)
		done.Warnings = append(done.Warnings, "this is in force but will not survive a restart, for it cannot be kept: "+err.Error())
	}
}

// Namesakes returns the backend and those of its pool that are leaving and were
// the same server under another name.
func (m *Member) Namesakes() []*balance.Backend {
	list := []*balance.Backend{m.Backend}
	for _, b := range m.Pool.Live.Leaving() {
		if b.Addr() == m.Addr() {
			list = append(list, b)
		}
	}
	return list
}

// FileWeight is the configured weight.
func (m *Member) FileWeight() int {
	for _, b := range m.Pool.Balance.Backends {
		if b.Name == m.Name() && b.Addr == m.Addr() {
			return b.Weight
		}
	}
	return m.Weight()
}

// Known returns admin.NotFound if a pool or backend that is not "" does not exist; those
// that are leaving do.
func (s *Set) Known(pool, backend string) error {
	var pools, backends []string
	for _, p := range s.All() {
		pools = append(pools, p.Name())
		if pool != "" && pool != p.Name() {
			continue
		}
		for _, b := range slices.Concat(p.Backends(), p.Leaving()) {
			backends = append(backends, b.Name())
		}
	}
	switch {
	case pool != "" && !slices.Contains(pools, pool):
		return unknown("pool", pool, pools)
	case backend != "" && !slices.Contains(backends, backend):
		return unknown("backend", backend, backends)
	}
	return nil
}

// Find returns the backend of that name, or admin.NotFound.
func (s *Set) Find(pool, backend string) (*Member, error) {
	p := s.Pool(pool)
	if p == nil {
		var names []string
		for _, p := range s.pools {
			names = append(names, p.Balance.Name)
		}
		return nil, unknown("pool", pool, names)
	}
	var names []string
	for _, b := range p.Balance.Backends {
		if b.Name == backend {
			if m := s.byKey[memberKey(pool, b.Addr)]; m != nil {
				return m, nil
			}
		}
		names = append(names, b.Name)
	}
	return nil, unknown("backend", backend, names)
}

// unknown is the error of a name that does not exist. It says what was probably
// meant, or what there is.
func unknown(kind, name string, names []string) error {
	hint := "there are none"
	if near := config.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if len(names) > 0 {
		hint = fmt.Sprintf("the %ss are %s", kind, plural.Few(names))
	}
	return admin.NotFound{Text: fmt.Sprintf("there is no %s %q; %s", kind, name, hint)}
}
