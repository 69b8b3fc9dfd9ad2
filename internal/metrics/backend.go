package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// backendKey is what the series of a backend are labelled with. Several
// backends may share it: one of the name that leaves, and one with another
// address that takes its place.
type backendKey struct{ pool, backend string }

// backendCounts is what one backend has counted.
type backendCounts struct {
	connections, datagrams, bytesIn, bytesOut uint64

	failures           [l4.NumConnectReasons]uint64
	connect, firstByte durations
	ejections          carried
	checkFailures      map[health.Reason]carried // nil if it never had a check
	stateChanges       map[StateChange]carried
}

// A carried count goes on when its origin starts anew at zero, as those kept by
// checks do when a backend is removed and added again.
type carried struct{ base, last uint64 }

func (c carried) next(v uint64) carried {
	if v < c.last {
		c.base += c.last
	}
	c.last = v
	return c
}

func (c carried) total() uint64 { return c.base + c.last }

// readBackend reads, as readService does, ends before beginnings. What checks
// say of a backend that is gone may be about its successor, so that is not asked.
func (c *Collector) readBackend(b *balance.Backend, before backendCounts, gone bool) (n backendCounts) {
	n.firstByte.read(&b.Stats.FirstByteTime)
	n.connect.read(&b.Stats.ConnectTime)
	for r := range n.failures {
		n.failures[r] = b.Stats.ConnectFailures[r].Load()
	}
	n.bytesIn, n.bytesOut = b.Stats.BytesIn.Load(), b.Stats.BytesOut.Load()
	n.connections, n.datagrams = b.Stats.Connections.Load(), b.Stats.Datagrams.Load()

	n.ejections, n.checkFailures, n.stateChanges = before.ejections, before.checkFailures, before.stateChanges
	if gone {
		return n
	}
	n.ejections = n.ejections.next(c.src.Ejections(b))
	n.stateChanges = carry(before.stateChanges, c.src.StateChanges(b))
	if st, ok := c.src.CheckStatus(b); ok {
		n.checkFailures = carry(before.checkFailures, st.FailuresBy)
	}
	return n
}

// carry goes on with counts by kind, of which some may be new and others gone.
func carry[K comparable](before map[K]carried, now map[K]uint64) map[K]carried {
	next := make(map[K]carried, len(now))
	for kind, c := range before {
		next[kind] = c.next(now[kind])
	}
	for kind, n := range now {
		next[kind] = before[kind].next(n)
	}
	return next
}

func addBackend(sum, c *backendCounts) {
	sum.connections += c.connections
	sum.datagrams += c.datagrams
	sum.bytesIn += c.bytesIn
	sum.bytesOut += c.bytesOut
	for r, n := range c.failures {
		sum.failures[r] += n
	}
	sum.connect.add(&c.connect)
	sum.firstByte.add(&c.firstByte)
	sum.ejections.base += c.ejections.total()
	if len(c.stateChanges) > 0 && sum.stateChanges == nil {
		sum.stateChanges = make(map[StateChange]carried, len(c.stateChanges))
	}
	for kind, n := range c.stateChanges {
		sum.stateChanges[kind] = carried{base: sum.stateChanges[kind].base + n.total()}
	}
	if c.checkFailures != nil && sum.checkFailures == nil {
		sum.checkFailures = make(map[health.Reason]carried, len(c.checkFailures))
	}
	for r, n := range c.checkFailures {
		sum.checkFailures[r] = carried{base: sum.checkFailures[r].base + n.total()}
	}
}

// backendGauges is the state of the backends of one name: their connections
// together, the rest of the configured one.
type backendGauges struct {
	active    int64
	state     string
	up        bool
	weight    int
	checked   bool
	checkTook float64 // seconds
	certEnds  int64   // Unix time; 0 = the check was shown no certificate
}

func (c *Collector) collectPools(ch chan<- prometheus.Metric) {
	keys := map[*balance.Backend]backendKey{}
	gauges := map[backendKey]*backendGauges{}
	pools := map[*balance.Pool]string{}
	for _, p := range c.src.Pools() {
		pool := label(p.Name())
		pools[p] = pool
		// In this order a backend that an Update moves meanwhile, either way, is
		// seen at least once; a backend overlooked would be taken for gone.
		for _, b := range slices.Concat(p.Backends(), p.Leaving(), p.Backends()) {
			key := backendKey{pool, label(b.Name())}
			keys[b] = key
			if gauges[key] == nil {
				gauges[key] = &backendGauges{state: balance.Removed.State()}
			}
		}
	}
	for b, key := range keys {
		c.readGauges(gauges[key], b)
	}
	c.emitPools(ch, pools)
	for key, n := range c.backends.totals(keys) {
		emitBackend(ch, key, n, gauges[key])
	}
}

func (c *Collector) readGauges(g *backendGauges, b *balance.Backend) {
	g.active += b.Active()
	flags := b.Flags()
	if flags&balance.Removed != 0 {
		return
	}
	g.state, g.weight = b.State(), b.Weight()
	g.up = g.state == balance.Flag(0).State()
	if st, ok := c.src.CheckStatus(b); ok && !st.At.IsZero() {
		g.checked, g.checkTook = true, st.Took.Seconds()
		if !st.CertExpires.IsZero() {
			g.certEnds = st.CertExpires.Unix()
		}
	}
}

func emitBackend(ch chan<- prometheus.Metric, key backendKey, n *backendCounts, g *backendGauges) {
	p, b := key.pool, key.backend
	ch <- backendConnections.value(float64(g.active), p, b)
	ch <- backendUp.value(truth(g.up), p, b)
	for _, state := range balance.States() {
		ch <- backendState.value(truth(state == g.state), p, b, state)
	}
	ch <- backendWeight.value(float64(g.weight), p, b)
	if g.checked {
		ch <- backendCheckDuration.value(g.checkTook, p, b)
		if g.certEnds != 0 {
			ch <- backendCheckCertificate.value(float64(g.certEnds), p, b)
		}
	}

	ch <- backendConnectionsTotal.value(float64(n.connections), p, b)
	if n.datagrams > 0 {
		ch <- backendDatagrams.value(float64(n.datagrams), p, b)
	}
	ch <- backendBytes.value(float64(n.bytesIn), p, b, "in")
	ch <- backendBytes.value(float64(n.bytesOut), p, b, "out")
	for r, failed := range n.failures {
		if reason := l4.ConnectReason(r); reason != l4.ConnectOK {
			ch <- backendConnectFailures.value(float64(failed), p, b, reason.String())
		}
	}
	ch <- &histogram{backendConnectDuration, []string{p, b}, &n.connect}
	ch <- &histogram{backendFirstByte, []string{p, b}, &n.firstByte}
	ch <- backendEjections.value(float64(n.ejections.total()), p, b)
	for kind, changes := range n.stateChanges {
		ch <- backendStateChanges.value(float64(changes.total()), p, b, kind.Author, kind.Reason)
	}
	for reason, failed := range n.checkFailures {
		ch <- backendCheckFailures.value(float64(failed.total()), p, b, string(reason))
	}
}

func truth(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
