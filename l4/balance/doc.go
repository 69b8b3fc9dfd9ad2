// Package balance decides which backend a new flow goes to, and counts what
// each backend carries.
//
//	pool := balance.New(balance.Spec{
//		Name:      "pg",
//		Algorithm: "least-conn",
//		Backends: []balance.BackendSpec{
//			{Name: "db1", Addr: balance.Address{AddrPort: netip.MustParseAddrPort("10.0.0.11:5432")}, Weight: 100},
//			{Name: "db2", Addr: balance.Address{AddrPort: netip.MustParseAddrPort("10.0.0.12:5432")}, Weight: 100},
//		},
//	}, nil)
//	lease, err := pool.Acquire(flow, nil)
//	if err != nil {
//		return err // ErrNoBackend or ErrBusy: refuse the client at once
//	}
//	defer lease.Release()
//	conn, err := net.Dial(lease.Backend().Addr().Network(), lease.Backend().Addr().Dial())
//
// A Pool holds the backends of one configuration entry. Who is eligible, and
// with which weight, is settled in one place, rebuildLocked, whenever Update or
// SetFlag changes something; it builds an immutable Picker from the eligible
// members and publishes both behind one pointer. Algorithms therefore never
// hear of health, drain, backup tiers or weight zero, and the data path takes no
// lock. Load is a Lease: Acquire adds one, Release takes it away, and nothing
// else counts.
//
// An algorithm sees neither half-open backends nor those in slow start: the lane
// gives them a counted number, or a counted part, of the flows. Lease.Report tells
// how a flow fared; the algorithms that look at latency and success live on it.
// While every backend is at MaxConnections flows can Wait, first come, first
// served.
//
// Once a change (SetFlag, Update) has returned, no lease is granted any more on
// a backend it made ineligible, not even by an Acquire that was already under
// way: a drained backend whose Active has been seen at 0 is finished.
//
// # Limits
//
// The package opens no sockets and keeps no goroutines: it neither checks backends
// nor resolves names; callers set flags, retry, and time out those who wait. While
// a slow start lasts a timer belongs to the pool, which needs no closing: an Update
// without backends, or the end of the slow start, ends it.
// Load is what this process knows of, so two balancers in front of the same
// backends balance least-conn and p2c each by its own share. Acquire costs O(1)
// for round-robin, random, p2c, ewma, adaptive and maglev, and O(backends) for
// least-conn and fastest, for first (as far as it must look) and for maglev with a bound.
package balance
