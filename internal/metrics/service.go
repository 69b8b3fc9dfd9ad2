package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// serviceCounts is what one service has counted.
type serviceCounts struct {
	accepted, bytesIn, bytesOut, retries uint64

	outcomes [l4.NumOutcomes]uint64
	duration durations

	// Of what has been a TCP service.
	tcp           bool
	resumed, full uint64 // handshakes

	// Of what has been a UDP service.
	udp                       bool
	datagramsIn, datagramsOut uint64
	dropped                   [udp.NumDropReasons]uint64
}

// readService reads ends before beginnings: no scrape shows more connections
// ended than accepted. A name may be of a service of one protocol now and of
// another's after a reload; its totals go on.
func readService(service any, before serviceCounts, _ bool) (c serviceCounts) {
	switch s := service.(type) {
	case *tcp.Service:
		c.readTCP(s, &before)
	case *udp.Service:
		c.readUDP(s)
	}
	return c
}

func (c *serviceCounts) readTCP(s *tcp.Service, before *serviceCounts) {
	c.tcp = true
	c.resumed = s.Stats.Resumed.Load()
	// A handshake that is counted between these two would be taken for a full one,
	// and next time for none: the difference must not fall.
	c.full = max(before.full, s.Stats.Handshakes.Load()-c.resumed)
	c.readCommon(&s.Stats.Stats)
	c.accepted = s.Stats.Accepted.Load()
}

// readCommon reads what services of every protocol count.
func (c *serviceCounts) readCommon(s *service.Stats) {
	c.duration.read(&s.Duration)
	for o := range c.outcomes {
		c.outcomes[o] = s.Outcomes[o].Load()
	}
	c.retries = s.Retries.Load()
	c.bytesIn, c.bytesOut = s.BytesIn.Load(), s.BytesOut.Load()
}

// readUDP takes for accepted, as TCP does, what has begun and what could not.
func (c *serviceCounts) readUDP(s *udp.Service) {
	c.udp = true
	c.readCommon(&s.Stats.Stats)
	for o, n := range c.outcomes {
		if o := l4.Outcome(o); o.Refused() || o == l4.ConnectFailed {
			c.accepted += n
		}
	}
	for r := range c.dropped {
		c.dropped[r] = s.Stats.Dropped[r].Load()
	}
	c.datagramsIn, c.datagramsOut = s.Stats.DatagramsIn.Load(), s.Stats.DatagramsOut.Load()
	c.accepted += s.Stats.Sessions.Load()
}

func addService(sum, c *serviceCounts) {
	sum.accepted += c.accepted
	sum.bytesIn += c.bytesIn
	sum.bytesOut += c.bytesOut
	sum.retries += c.retries
	for o, n := range c.outcomes {
		sum.outcomes[o] += n
	}
	sum.duration.add(&c.duration)
	sum.tcp = sum.tcp || c.tcp
	sum.resumed += c.resumed
	sum.full += c.full
	sum.udp = sum.udp || c.udp
	sum.datagramsIn += c.datagramsIn
	sum.datagramsOut += c.datagramsOut
	for r, n := range c.dropped {
		sum.dropped[r] += n
	}
}

// serviceGauges is the state of the services of one name together.
type serviceGauges struct{ active, handshakes int64 }

func (c *Collector) collectServices(ch chan<- prometheus.Metric) {
	names := map[any]string{}
	gauges := map[string]serviceGauges{}
	found := func(service any, name string, active, handshakes int64) {
		name = label(name)
		names[service] = name
		g := gauges[name]
		gauges[name] = serviceGauges{g.active + active, g.handshakes + handshakes}
	}
	for _, s := range c.src.Services() {
		found(s, s.Name, s.Active(), s.Stats.HandshakesActive.Load())
	}
	for _, s := range c.src.UDPServices() {
		found(s, s.Name, s.Active(), 0)
	}
	for name, n := range c.services.totals(names) {
		emitService(ch, name, n, gauges[name])
	}
}

func emitService(ch chan<- prometheus.Metric, name string, n *serviceCounts, g serviceGauges) {
	ch <- serviceConnections.value(float64(g.active), name)
	ch <- serviceConnectionsTotal.value(float64(n.accepted), name)
	ch <- serviceBytes.value(float64(n.bytesIn), name, "in")
	ch <- serviceBytes.value(float64(n.bytesOut), name, "out")
	for o, ended := range n.outcomes {
		o := l4.Outcome(o)
		ch <- sessions.value(float64(ended), name, o.String())
		if o.Refused() {
			ch <- serviceRefused.value(float64(ended), name, o.String())
		}
	}
	ch <- &histogram{sessionDuration, []string{name}, &n.duration}
	ch <- serviceRetries.value(float64(n.retries), name)
	if n.tcp {
		ch <- tlsHandshakes.value(float64(n.resumed), name, "true")
		ch <- tlsHandshakes.value(float64(n.full), name, "false")
		ch <- tlsHandshakesActive.value(float64(g.handshakes), name)
	}
	if n.udp {
		ch <- serviceDatagrams.value(float64(n.datagramsIn), name, "in")
		ch <- serviceDatagrams.value(float64(n.datagramsOut), name, "out")
		for r, dropped := range n.dropped {
			ch <- udpDropped.value(float64(dropped), name, udp.DropReason(r).String())
		}
	}
}

// label makes a name fit for a label, which must be UTF-8: the path of a unix
// socket need not be.
func label(name string) string { return strings.ToValidUTF8(name, "\ufffd") }
