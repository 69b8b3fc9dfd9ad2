package daemon

import (
	"strings"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
	listening "github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

func (g *generation) tcpStatus(svc *tcp.Service) admin.Service {
	st := &svc.Stats
	s := serviceStatus(g, svc, "tcp", &st.Stats)
	s.Total = st.Accepted.Load()
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
	s := serviceStatus(g, svc, "udp", &st.Stats)
	s.Total = st.Sessions.Load() + st.Outcomes[l4.ConnectFailed].Load() // as poise_service_connections_total
	for _, n := range s.Refused {
		s.Total += n
	}
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
func serviceStatus[T any](g *generation, svc *listening.Service[T], protocol string, st *listening.Stats) admin.Service {
	s := admin.Service{
		Name: svc.Name, Protocol: protocol, Listen: []string{}, State: "draining",
		Connections: svc.Active(), BytesIn: st.BytesIn.Load(), BytesOut: st.BytesOut.Load(),
		Outcomes: map[string]uint64{}, Refused: map[string]uint64{},
	}
	if c := g.service(svc.Name); c != nil && !svc.Leaving() {
		s.State, s.Protocol = "up", c.protocol()
		s.Listen = config.ListenTexts(c.Listen())
		s.Pool = strings.Join(c.Pools(), " ")
	}
	for o := range st.Outcomes {
		if n := st.Outcomes[o].Load(); n > 0 {
			s.Outcomes[l4.Outcome(o).String()] = n
			if l4.Outcome(o).Refused() {
				s.Refused[l4.Outcome(o).String()] = n
			}
		}
	}
	return s
}
