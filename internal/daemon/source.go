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

func (s source) Pools() []*balance.Pool { return s.d.control.Set().All() }

func (s source) CheckStatus(b *balance.Backend) (health.Status, bool) {
	return s.d.control.CheckStatus(b)
}

func (s source) Ejections(b *balance.Backend) uint64 { return s.d.control.Ejection(b).Total }

func (s source) StateChanges(b *balance.Backend) map[metrics.StateChange]uint64 {
	return s.d.control.StateChanges(b)
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
