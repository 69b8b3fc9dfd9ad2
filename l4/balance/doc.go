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
// Once a change (SetFlag, Update) has returned, no lease is granted any more on
// a backend it made ineligible, not even by an Acquire that was already under
// way: a drained backend whose Active has been seen at 0 is finished.
//
// # Limits
//
// The package opens no sockets and starts no goroutines: it neither checks
// backends nor resolves names nor queues clients; callers set flags and retry.
// Load is what this process knows of, so two balancers in front of the same
// backends balance least-conn and p2c each by its own share. Acquire costs O(1)
// for round-robin, random, p2c and maglev, and O(backends) for least-conn, for
// first (as far as it must look) and for maglev with a bound.
package balance
