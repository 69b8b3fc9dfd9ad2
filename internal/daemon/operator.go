package daemon

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// operated are the flags whose writer is the operator.
const operated = balance.Drained | balance.Maint

// oblige makes the pool follow the operator once more after an update: what a
// backend is created with, what a reload has kept and what somebody has said
// meanwhile come to the same. d.verdicts is held.
func (d *Daemon) oblige(p *pool, spec balance.Spec) {
	d.operator.reconcile(spec, len(p.Discovery.Names) > 0 || p.Discovery.File != "", time.Now())
	for _, b := range spec.Backends {
		id := balance.BackendID{Name: b.Name, Addr: b.Addr}
		d.operator.due(memberKey(spec.Name, b.Addr)).apply(p.balance, id)
	}
}

// apply makes flags and weight of a backend what they are to be.
func (h held) apply(p *balance.Pool, id balance.BackendID) {
	due := h.flags()
	p.SetFlag(id, due, true) // first: it must not be ready in between
	p.SetFlag(id, operated&^due, false)
	weight := -1
	if h.Weight != nil {
		weight = *h.Weight
	}
	p.SetWeight(id, weight)
}

// Backend is part of admin.Operator.
func (d *Daemon) Backend(pool, backend string) (admin.BackendState, error) {
	m, err := d.generation.Load().find(pool, backend)
	if err != nil {
		return admin.BackendState{}, err
	}
	return d.backendState(m), nil
}

// SetState is part of admin.Operator.
func (d *Daemon) SetState(pool, backend string, r admin.StateRequest) (admin.BackendState, error) {
	want := r.State
	if want == admin.OperatorReady {
		want = ""
	}
	m, was, err := d.operate(pool, backend, func(_ *member, h *held) {
		if h.State != want {
			h.State, h.Since = want, time.Now().Round(0)
		}
		if want == "" {
			h.Since = time.Time{}
		}
	})
	if err != nil {
		return admin.BackendState{}, err
	}
	var closed int64
	if want == admin.OperatorMaint || r.Close && want == admin.OperatorDrain {
		for _, b := range m.namesakes() {
			closed += b.Active()
			d.data.closeBackend(b, l4.Drained, 0)
		}
	}
	if was.State != want || closed > 0 {
		d.note(m.Backend, slog.LevelInfo, "backend state is changed", "operator", r.State, "was", stateWord(was.State), "closed", closed)
	}
	s := d.backendState(m)
	s.Closed = closed
	if want != "" && m.pool.balance.Eligible() == 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("pool %s has no backend left to send connections to", pool))
	}
	d.keep(&s)
	return s, nil
}

// SetWeight is part of admin.Operator.
func (d *Daemon) SetWeight(pool, backend string, weight *int) (admin.BackendState, error) {
	m, was, err := d.operate(pool, backend, func(m *member, h *held) {
		h.Weight, h.FileWeight = weight, 0
		if weight != nil {
			h.FileWeight = m.fileWeight()
		}
	})
	if err != nil {
		return admin.BackendState{}, err
	}
	if weightText(was.Weight) != weightText(weight) {
		d.note(m.Backend, slog.LevelInfo, "backend weight is changed", "operator", "weight", "weight", weightText(weight),
			"was", weightText(was.Weight), "configured", m.fileWeight())
	}
	s := d.backendState(m)
	d.keep(&s)
	return s, nil
}

func weightText(w *int) string {
	if w == nil {
		return "auto"
	}
	return fmt.Sprint(*w)
}

// operate changes what holds for a backend, at once in the pool, and returns what
// has held before.
func (d *Daemon) operate(pool, backend string, change func(*member, *held)) (m *member, was held, err error) {
	d.verdicts.Lock() // so that the backend stays configured meanwhile
	defer d.verdicts.Unlock()
	if m, err = d.generation.Load().find(pool, backend); err != nil {
		return nil, was, err
	}
	was = d.operator.due(m.key)
	now := was
	now.Pool, now.Backend, now.Address = m.PoolName(), m.Name(), m.Addr().String()
	change(m, &now)
	d.operator.set(m.key, now)
	now.apply(m.pool.balance, m.ID())
	m.pool.reckon(m.Backend)
	d.observe(m.pool)
	return m, was, nil
}

// keep writes what holds to the file; the operator is told if that fails.
func (d *Daemon) keep(s *admin.BackendState) {
	if err := d.operator.save(); err != nil {
		d.log.Error("the operator's state is not kept", "error", err)
		s.Warnings = append(s.Warnings, "this is in force but will not survive a restart, for it cannot be kept: "+err.Error())
	}
}

// namesakes returns the backend and those of its pool that are leaving and were
// the same server under another name.
func (m *member) namesakes() []*balance.Backend {
	list := []*balance.Backend{m.Backend}
	for _, b := range m.pool.balance.Leaving() {
		if b.Addr() == m.Addr() {
			list = append(list, b)
		}
	}
	return list
}

// fileWeight is the configured weight.
func (m *member) fileWeight() int {
	for _, b := range m.pool.Balance.Backends {
		if b.Name == m.Name() && b.Addr == m.Addr() {
			return b.Weight
		}
	}
	return m.Weight()
}

func (d *Daemon) backendState(m *member) admin.BackendState {
	b := d.backendStatus(m.Backend)
	s := admin.BackendState{
		Pool: m.PoolName(), Backend: m.Name(), Address: m.Addr().String(),
		Operator: stateWord(d.operator.due(m.key).State), State: b.State, Reason: b.Reason,
		Weight: m.Weight(), FileWeight: m.fileWeight(), Warnings: []string{},
	}
	for _, b := range m.namesakes() {
		s.Connections += b.Active()
	}
	return s
}

// operatorStatus adds to a backend's status what the operator has said.
func (d *Daemon) operatorStatus(s *admin.Backend, m *member) {
	h := d.operator.due(m.key)
	s.Operator = h.State
	if h.State != "" {
		s.Reason = strings.TrimSuffix(fmt.Sprintf("%s by the operator since %s; %s", h.State, h.Since.Format("2006-01-02 15:04:05"), s.Reason), "; ")
	}
	if h.Weight != nil {
		file := m.fileWeight()
		s.FileWeight = &file
	}
}

// Conns is part of admin.Operator.
func (d *Daemon) Conns(q admin.ConnQuery) ([]admin.Conn, error) {
	if err := d.knows(q.Pool, q.Backend); err != nil {
		return nil, err
	}
	list := []admin.Conn{}
	for _, c := range d.data.conns(q.Limit, q.Pool, q.Backend) {
		list = append(list, admin.Conn{
			Proto: c.Flow.Proto.String(), Client: c.Flow.Client, Peer: c.Peer, Local: c.Flow.VIP,
			Service: c.Service, Pool: c.Pool, Backend: c.Backend, State: c.State,
			Age: c.Age.Seconds(), Idle: c.Idle.Seconds(), BytesIn: c.BytesIn, BytesOut: c.BytesOut,
			DatagramsIn: c.DatagramsIn, DatagramsOut: c.DatagramsOut,
		})
	}
	return list, nil
}

// knows returns an error if a pool or backend that is not "" does not exist;
// those that are leaving do.
func (d *Daemon) knows(pool, backend string) error {
	var pools, backends []string
	for _, p := range d.pools() {
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

// find returns the backend of that name.
func (g *generation) find(pool, backend string) (*member, error) {
	p := g.pool(pool)
	if p == nil {
		var names []string
		for _, p := range g.pools {
			names = append(names, p.Balance.Name)
		}
		return nil, unknown("pool", pool, names)
	}
	var names []string
	for _, b := range p.Balance.Backends {
		if b.Name == backend {
			if m := g.byKey[memberKey(pool, b.Addr)]; m != nil {
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
		hint = fmt.Sprintf("the %ss are %s", kind, few(names))
	}
	return admin.NotFound{Text: fmt.Sprintf("there is no %s %q; %s", kind, name, hint)}
}
