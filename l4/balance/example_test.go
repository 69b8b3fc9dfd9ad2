package balance_test

import (
	"fmt"
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

func Example() {
	backend := func(name, addr string) balance.BackendSpec {
		return balance.BackendSpec{Name: name, Addr: balance.Address{AddrPort: netip.MustParseAddrPort(addr)}, Weight: 100}
	}
	pool := balance.New(balance.Spec{
		Name:      "pg",
		Algorithm: "least-conn",
		Backends:  []balance.BackendSpec{backend("db1", "10.0.0.11:5432"), backend("db2", "10.0.0.12:5432")},
	}, nil)

	flow := l4.Flow{Client: netip.MustParseAddrPort("192.0.2.7:40000")}
	first, err := pool.Acquire(flow, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Release()

	// Suppose the connect failed: ask for any other.
	tried := first.Backend()
	second, err := pool.Acquire(flow, func(b *balance.Backend) bool { return b == tried })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Release()
	fmt.Println(first.Backend() != second.Backend(), pool.Active())

	for _, b := range pool.Backends() {
		pool.SetFlag(b.ID(), balance.Maint, true)
	}
	_, err = pool.Acquire(flow, nil)
	fmt.Println(err)
	// Output:
	// true 2
	// no eligible backend
}
