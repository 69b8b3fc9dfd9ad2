package daemon

import (
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/metrics"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// source shows the daemon to the metrics collector; see metrics.Source.
type source struct{ d *Daemon }

func (s source) Services() []*tcp.Service {
	s.d.data.tcp.Flush()
	return s.d.data.tcp.Services()
}

func (s source) UDPServices() []*udp.Service {
	s.d.data.udp.Flush()
	return s.d.data.udp.Services()
}

func (s source) Pools() []*balance.Pool { return s.d.pools() }

func (s source) CheckStatus(b *balance.Backend) (health.Status, bool) {
	m := s.d.generation.Load().members[b]
	if m == nil || m.pool.Check.Type == "none" {
		return health.Status{}, false
	}
	return s.d.monitor.Status(m.key)
}

func (s source) Ejections(b *balance.Backend) uint64 {
	m := s.d.generation.Load().members[b]
	if m == nil {
		return 0
	}
	e, _ := m.pool.outlier.Status(m.key)
	return e.Total
}

func (s source) StateChanges(b *balance.Backend) map[metrics.StateChange]uint64 {
	return s.d.journal.of(b)
}

func (s source) LastReload() (at time.Time, ok bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.d.lastReload.At, s.d.lastReload.OK
}

func (s source) AcceptErrors() map[string]uint64 { return s.d.data.tcp.AcceptErrors() }

func (s source) LoopBusy() (busy, total []time.Duration) { return s.d.data.loops.Busy() }

func (s source) Certificates() (list []metrics.Certificate) {
	for _, svc := range s.d.generation.Load().services {
		if svc.certs == nil {
			continue
		}
		for _, c := range svc.certs.Certificates() {
			list = append(list, metrics.Certificate{Service: svc.Name, Path: c.Path, Expires: c.NotAfter})
		}
	}
	return list
}

func (s source) LogDropped() uint64 { return s.d.logging.lines.Lost() }

func (s source) BrokenCertificates() int {
	if c := s.d.certState.Load(); c != nil {
		return c.Broken
	}
	return 0
}

func (s source) AccessLogDropped() uint64 { return s.d.access.Dropped() }

// pools returns the configured pools and those that leave, by name.
func (d *Daemon) pools() []*balance.Pool {
	d.prune()
	return d.generation.Load().balancePools()
}

// prune forgets leaving pools that have no connection left. Nobody does so by the
// clock: a pool nobody looks at is in nobody's way. While a reload is under way
// nothing is forgotten, because it may use one of them again.
func (d *Daemon) prune() {
	if len(d.generation.Load().leaving) == 0 || !d.applying.TryLock() {
		return
	}
	defer d.discovery.tell() // follow may just have found the lock taken
	defer d.applying.Unlock()
	next := *d.generation.Load()
	next.leaving = next.stillLeaving(time.Now())
	d.generation.Store(&next)
}
