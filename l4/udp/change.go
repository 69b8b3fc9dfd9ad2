package udp

import (
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

// A Change is a set of routes that is ready to run; see service.Change. Open sessions
// take up the new settings with their client's next datagram. A removed listener makes no
// new sessions; its sockets are closed with its last session, which is one idle limit
// later at most. Where another listener has its clients' addresses, as a wildcard or as a
// part of one, that has its sessions at once.
type Change = service.Change[route, ServiceStats, *receiver]

// Prepare binds the addresses of routes that are not open yet; see
// service.Server.Prepare. What comes to a new address from now on waits for Commit; what
// came to one that is open so far, as a wildcard, goes on as before.
func (s *Server) Prepare(routes []Route) (*Change, error) {
	budgets := s.equip(routes)
	plans := make([]plan, len(routes))
	for i, r := range routes {
		plans[i] = plan{
			Name: r.Spec.Name, Listen: r.Spec.Listen,
			Bind: func(l l4.Listen, share bool) (int, error) {
				o := socketOptions(l, &r.Spec)
				o.Share = share
				return sock.BindUDP(l.Addr, o)
			},
			Adopt: func(l l4.Listen, fd int) error { return socketOptions(l, &r.Spec).Apply(fd) },
			Route: func(svc *Service) *route { return &route{Route: r, service: svc, ports: budgets[i]} },
		}
	}
	return s.listening.Prepare(plans)
}

// equip makes what routes need of the server, and returns the budget of ports of each.
// The limit of budgets follows what the range of ports is now.
func (s *Server) equip(routes []Route) []*ports {
	s.equipping.Lock()
	defer s.equipping.Unlock()
	if s.rests == nil && len(routes) > 0 {
		s.rests, s.sockets = newRests(), newSockets() // a few MiB, not needed where there is only TCP
	}
	budgets := make([]*ports, len(routes))
	for i, r := range routes {
		if s.ports[r.Source] == nil {
			s.ports[r.Source] = new(ports)
		}
		budgets[i] = s.ports[r.Source]
	}
	limit := portLimit()
	for _, p := range s.ports {
		p.limit.Store(limit)
	}
	return budgets
}
