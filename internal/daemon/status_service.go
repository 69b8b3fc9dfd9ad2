package daemon

import (
	"strings"
	"sync/atomic"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

func (g *generation) tcpStatus(svc *tcp.Service) admin.Service {
	st := &svc.Stats
	s := g.serviceStatus(svc.Name, "tcp", svc.Leaving(), &st.Outcomes)
	s.Connections, s.Total = svc.Active(), st.Accepted.Load()
	s.BytesIn, s.BytesOut = st.BytesIn.Load(), st.BytesOut.Load()
	configured := g.service(svc.Name)
	if configured == nil || configured.certs == nil {
		return s
	}
	s.TLS = &admin.ServiceTLS{
		Handshakes: st.Handshakes.Load(), Resumed: st.Resumed.Load(), Active: st.HandshakesActive.Load(),
		Certificates: []admin.Certificate{},
	}
	for _, c := range configured.certs.Certificates() {
		s.TLS.Certificates = append(s.TLS.Certificates, admin.Certificate{Path: c.Path, Names: c.Names, KeyType: c.KeyType, Expires: c.NotAfter})
	}
	return s
}

func (g *generation) udpStatus(svc *udp.Service) admin.Service {
	st := &svc.Stats
	s := g.serviceStatus(svc.Name, "udp", svc.Leaving(), &st.Outcomes)
	s.Connections = svc.Active()
	s.Total = st.Sessions.Load() + st.Outcomes[l4.ConnectFailed].Load() // as poise_service_connections_total
	for _, n := range s.Refused {
		s.Total += n
	}
	s.BytesIn, s.BytesOut = st.BytesIn.Load(), st.BytesOut.Load()
	s.UDP = &admin.ServiceUDP{DatagramsIn: st.DatagramsIn.Load(), DatagramsOut: st.DatagramsOut.Load(), Dropped: map[string]uint64{}}
	for r := range st.Dropped {
		if n := st.Dropped[r].Load(); n > 0 {
			s.UDP.Dropped[udp.DropReason(r).String()] = n
		}
	}
	return s
}

// serviceStatus is what services of every protocol have. The protocol is that of a
// service which is configured no longer.
func (g *generation) serviceStatus(name, protocol string, leaving bool, outcomes *[l4.NumOutcomes]atomic.Uint64) admin.Service {
	s := admin.Service{
		Name: name, Protocol: protocol, Listen: []string{}, State: "draining",
		Outcomes: map[string]uint64{}, Refused: map[string]uint64{},
	}
	if c := g.service(name); c != nil && !leaving {
		s.State, s.Protocol = "up", c.protocol()
		s.Listen = config.ListenTexts(c.Listen())
		s.Pool = strings.Join(c.Pools(), " ")
	}
	for o := range outcomes {
		if n := outcomes[o].Load(); n > 0 {
			s.Outcomes[l4.Outcome(o).String()] = n
			if l4.Outcome(o).Refused() {
				s.Refused[l4.Outcome(o).String()] = n
			}
		}
	}
	return s
}
