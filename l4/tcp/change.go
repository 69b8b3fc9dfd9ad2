package tcp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

// A Change is a set of routes that is ready to run; see service.Change. Open connections
// go on under the settings they began with. Removed listeners have emptied their queues
// when Commit returns.
type Change = service.Change[route, ServiceStats, *acceptor]

// Prepare binds the addresses of routes that are not open yet; see
// service.Server.Prepare.
func (s *Server) Prepare(routes []Route) (*Change, error) {
	plans := make([]plan, len(routes))
	for i, r := range routes {
		plans[i] = plan{
			Name: r.Spec.Name, Listen: r.Spec.Listen,
			Bind: func(l l4.Listen, share bool) (int, error) {
				o := listenOptions(l, &r.Spec)
				o.Share = share
				return sock.Bind(l.Addr, o)
			},
			Adopt: func(l l4.Listen, fd int) error { return listenOptions(l, &r.Spec).Apply(fd) },
			Route: func(svc *Service) *route { return newRoute(r, svc) },
		}
	}
	return s.listening.Prepare(plans)
}
