package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
)

// refusals are the outcomes of connections that were turned away without a
// backend having failed them.
var refusals = []l4.Outcome{
	l4.NoBackend, l4.RefusedLimit, l4.QueueFull, l4.QueueTimeout, l4.NoLocalPort, l4.NoDescriptors,
}

// serviceCounts is what one service has counted.
type serviceCounts struct {
	accepted, bytesIn, bytesOut, retries uint64

	outcomes [l4.NumOutcomes]uint64
	duration durations
}

// readService reads ends before beginnings: no scrape shows more connections
// ended than accepted.
func readService(s *tcp.Service, _ serviceCounts, _ bool) (c serviceCounts) {
	c.duration.read(&s.Stats.Duration)
	for o := range c.outcomes {
		c.outcomes[o] = s.Stats.Outcomes[o].Load()
	}
	c.retries = s.Stats.Retries.Load()
	c.bytesIn, c.bytesOut = s.Stats.BytesIn.Load(), s.Stats.BytesOut.Load()
	c.accepted = s.Stats.Accepted.Load()
	return c
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
}

func (c *Collector) collectServices(ch chan<- prometheus.Metric) {
	names := map[*tcp.Service]string{}
	active := map[string]int64{}
	for _, s := range c.src.Services() {
		name := label(s.Name)
		names[s] = name
		active[name] += s.Active()
	}
	for name, n := range c.services.totals(names) {
		ch <- serviceConnections.value(float64(active[name]), name)
		ch <- serviceConnectionsTotal.value(float64(n.accepted), name)
		ch <- serviceBytes.value(float64(n.bytesIn), name, "in")
		ch <- serviceBytes.value(float64(n.bytesOut), name, "out")
		ch <- serviceRetries.value(float64(n.retries), name)
		for o, ended := range n.outcomes {
			ch <- sessions.value(float64(ended), name, l4.Outcome(o).String())
		}
		for _, o := range refusals {
			ch <- serviceRefused.value(float64(n.outcomes[o]), name, o.String())
		}
		ch <- &histogram{sessionDuration, []string{name}, &n.duration}
	}
}

// label makes a name fit for a label, which must be UTF-8: the path of a unix
// socket need not be.
func label(name string) string { return strings.ToValidUTF8(name, "\ufffd") }
