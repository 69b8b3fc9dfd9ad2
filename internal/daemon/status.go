package daemon

import (
	"cmp"
	"os"
	"slices"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// Status describes everything that runs.
func (d *Daemon) Status() admin.Status {
	d.data.Flush()
	g := d.generation.Load()
	s := admin.Status{
		Version:     d.options.Version,
		PID:         os.Getpid(),
		Started:     d.started,
		Now:         time.Now(),
		State:       "running",
		Config:      d.options.Path,
		Connections: d.data.active(),
		Services:    []admin.Service{},
		Pools:       []admin.Pool{},
	}
	if d.phase.Load() == stopping {
		s.State = "stopping"
	}
	if c := d.certState.Load(); c != nil {
		s.Warnings = c.Warnings
	}
	s.Warnings = slices.Concat(s.Warnings, d.amiss())
	d.mu.Lock()
	s.LastReload = d.lastReload
	d.mu.Unlock()
	s.Problems = d.problems()
	for _, svc := range d.data.tcp.Services() {
		s.Services = append(s.Services, g.tcpStatus(svc))
	}
	for _, svc := range d.data.udp.Services() {
		s.Services = append(s.Services, g.udpStatus(svc))
	}
	slices.SortStableFunc(s.Services, func(a, b admin.Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range d.control.Set().All() {
		s.Pools = append(s.Pools, d.poolStatus(p))
	}
	return s
}

func (d *Daemon) poolStatus(p *balance.Pool) admin.Pool {
	snap := p.Snapshot()
	s := admin.Pool{
		Name: snap.Name, Balance: balanceText(snap), Eligible: snap.Eligible, Panic: snap.Panic, OnBackup: snap.Backup,
		Queue: snap.Waiting, Denied: snap.Denied, Strategies: d.strategyStatus(p, snap.Strategies), Backends: []admin.Backend{},
	}
	s.Sources = d.control.Sources(p.Name())
	for _, b := range slices.Concat(p.Backends(), p.Leaving()) {
		one := d.backendStatus(b)
		for _, m := range snap.Backends {
			if m.Name == b.Name() && m.Addr == b.Addr() {
				one.Ramp, one.Trials = m.Share, max(m.Trials, 0)
			}
		}
		s.Backends = append(s.Backends, one)
	}
	return s
}

// balanceText says how the pool chooses.
func balanceText(s balance.Snapshot) string {
	if len(s.Strategies) != 2 {
		return s.Algorithm
	}
	return "ab: " + s.Strategies[0].Algorithm + " / " + s.Strategies[1].Algorithm
}

func (d *Daemon) strategyStatus(p *balance.Pool, list []balance.StrategySnapshot) (out []admin.Strategy) {
	var all uint64
	for _, s := range list {
		all += s.Sessions
	}
	for _, s := range list {
		took := d.recent.of(strategyKey{p, s.Name}, s.Latency)
		one := admin.Strategy{
			Name: s.Name, Balance: s.Algorithm, Sessions: s.Sessions,
			P50: took.Quantile(0.5).Seconds(), P95: took.Quantile(0.95).Seconds(), P99: took.Quantile(0.99).Seconds(),
		}
		if all > 0 {
			one.Share = float64(s.Sessions) / float64(all)
		}
		if n := s.Successes + s.Failures; n > 0 {
			one.Success = float64(s.Successes) / float64(n)
		}
		out = append(out, one)
	}
	return out
}

func (d *Daemon) backendStatus(b *balance.Backend) (s admin.Backend) {
	connect := d.recent.of(&b.Stats.ConnectTime, b.Stats.ConnectTime.Counts())
	firstByte := d.recent.of(&b.Stats.FirstByteTime, b.Stats.FirstByteTime.Counts())
	s = admin.Backend{
		Name:         b.Name(),
		Address:      b.Addr().String(),
		State:        b.State(),
		Weight:       b.Weight(),
		Backup:       b.Backup(),
		Connections:  b.Active(),
		Total:        b.Stats.Connections.Load(),
		Datagrams:    b.Stats.Datagrams.Load(),
		BytesIn:      b.Stats.BytesIn.Load(),
		BytesOut:     b.Stats.BytesOut.Load(),
		ConnectP50:   connect.Quantile(0.5).Seconds(),
		ConnectP99:   connect.Quantile(0.99).Seconds(),
		FirstByteP50: firstByte.Quantile(0.5).Seconds(),
		FirstByteP99: firstByte.Quantile(0.99).Seconds(),
	}
	for r := range b.Stats.ConnectFailures {
		if l4.ConnectReason(r) != l4.ConnectOK {
			s.ConnectFailures += b.Stats.ConnectFailures[r].Load()
		}
	}
	m := d.control.Set().Member(b)
	if m == nil {
		return s
	}
	defer d.operatorStatus(&s, m) // last: it says more about the reason
	if e := d.control.Ejection(b); e.State != health.Closed {
		s.Reason, s.EjectedUntil = e.Why, e.Until
	}
	st, known := d.control.CheckStatus(b)
	if !known {
		return s
	}
	s.Check = &admin.Check{
		Type:   m.Pool.Check.Type,
		Up:     st.Up,
		Reason: string(st.Reason),
		Detail: st.Detail,
		At:     st.At,
		Took:   st.Took.Seconds(),
		Since:  st.Since,
		Probes: st.Probes,

		CertExpires: st.CertExpires,
	}
	if !st.Up {
		s.Reason = checkReason(st.Verdict, string(st.Reason), st.Detail)
	}
	return s
}

func checkReason(verdict bool, reason, detail string) string {
	switch {
	case !verdict && reason == "":
		return "not checked yet"
	case detail == "":
		return reason
	}
	return reason + ": " + detail
}
