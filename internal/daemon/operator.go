package daemon

import (
	"fmt"
	"strings"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/control"
)

// Backend is part of admin.Operator.
func (d *Daemon) Backend(pool, backend string) (admin.BackendState, error) {
	m, err := d.control.Set().Find(pool, backend)
	if err != nil {
		return admin.BackendState{}, err
	}
	return d.backendState(m), nil
}

// SetState is part of admin.Operator.
func (d *Daemon) SetState(pool, backend string, r admin.StateRequest) (admin.BackendState, error) {
	return d.answer(d.control.SetState(pool, backend, r))
}

// SetWeight is part of admin.Operator.
func (d *Daemon) SetWeight(pool, backend string, weight *int) (admin.BackendState, error) {
	return d.answer(d.control.SetWeight(pool, backend, weight))
}

// answer describes the backend that a command was about.
func (d *Daemon) answer(done control.Done, err error) (admin.BackendState, error) {
	if err != nil {
		return admin.BackendState{}, err
	}
	s := d.backendState(done.Member)
	s.Closed = done.Closed
	s.Warnings = append(s.Warnings, done.Warnings...)
	return s, nil
}

func (d *Daemon) backendState(m *control.Member) admin.BackendState {
	b := d.backendStatus(m.Backend)
	s := admin.BackendState{
		Pool: m.PoolName(), Backend: m.Name(), Address: m.Addr().String(),
		Operator: d.control.Order(m).Word(), State: b.State, Reason: b.Reason,
		Weight: m.Weight(), FileWeight: m.FileWeight(), Warnings: []string{},
	}
	for _, b := range m.Namesakes() {
		s.Connections += b.Active()
	}
	return s
}

// operatorStatus adds to a backend's status what the operator has said.
func (d *Daemon) operatorStatus(s *admin.Backend, m *control.Member) {
	o := d.control.Order(m)
	s.Operator = o.State
	if o.State != "" {
		s.Reason = strings.TrimSuffix(fmt.Sprintf("%s by the operator since %s; %s", o.State, o.Since.Format("2006-01-02 15:04:05"), s.Reason), "; ")
	}
	if o.Weight != nil {
		file := m.FileWeight()
		s.FileWeight = &file
	}
}

// Conns is part of admin.Operator.
func (d *Daemon) Conns(q admin.ConnQuery) ([]admin.Conn, error) {
	if err := d.control.Set().Known(q.Pool, q.Backend); err != nil {
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
