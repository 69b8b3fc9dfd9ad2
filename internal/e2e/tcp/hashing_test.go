package tcp

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-09: which backend a source address goes to depends on the set of
// backends, and on nothing else.
func TestHashDependsOnTheSetAlone(t *testing.T) {
	const sources, size = 1200, 5
	db := make([]*loadgen.Backend, size)
	for i := range db {
		db[i] = rig.Backend(t, fmt.Sprintf("db%d", i+1), loadgen.Behaviour{})
	}
	listen, second := rig.Addr(t), rig.Addr(t)
	yaml := func(listen string, list ...*loadgen.Backend) string {
		members := make([]string, len(list))
		for i, b := range list {
			members[i] = rig.Member(b.Name(), b.Addr())
		}
		return rig.WebConfig(listen, "", "balance: maglev, check: {type: tcp, interval: 100ms, fast_interval: 100ms, down_interval: 100ms, rise: 1, fall: 2}", members...)
	}
	clients := make([]netip.Addr, sources)
	for i := range clients { // all of 127/8 is this host
		clients[i] = netip.AddrFrom4([4]byte{127, byte(1 + i%250), byte(rand.N(256)), byte(1 + i/250)})
	}
	p := rig.Start(t, yaml(listen, db...))
	want := whoServes(t, listen, clients)
	for _, b := range db {
		if n := count(want, b.Name()); n < sources/size/2 || n > sources/size*2 {
			t.Errorf("%s has %d of %d clients", b.Name(), n, sources)
		}
	}
	same := func(what, listen string) {
		t.Helper()
		got := whoServes(t, listen, clients)
		moved := 0
		for i := range want {
			if got[i] != want[i] {
				moved++
			}
		}
		if moved > 0 {
			t.Errorf("%s: %d of %d clients moved", what, moved, sources)
		}
	}
	// only checks that the clients of the one that is gone, and hardly any others,
	// have moved.
	only := func(what string, gone *loadgen.Backend) {
		t.Helper()
		got := whoServes(t, listen, clients)
		moved, others := 0, sources-count(want, gone.Name())
		for i := range want {
			if got[i] == gone.Name() {
				t.Fatalf("%s: %s answered", what, gone.Name())
			}
			if got[i] != want[i] && want[i] != gone.Name() {
				moved++
			}
		}
		if moved > others*2/100 {
			t.Errorf("%s: %d of %d other clients moved", what, moved, others)
		}
	}

	shuffled := []*loadgen.Backend{db[3], db[0], db[4], db[2], db[1]}
	p.MustReload(t, yaml(listen, shuffled...))
	same("a shuffled list", listen)

	p.MustReload(t, yaml(listen, db[0], db[1], db[3], db[4]))
	only("one is removed", db[2])
	p.MustReload(t, yaml(listen, db...))
	same("it is back", listen)

	state := func(want string) func() bool {
		return func() bool { return p.Backend(t, "web", db[1].Name()).State == want }
	}
	db[1].Kill()
	rig.Eventually(t, "one to be down", state("down"))
	only("one fails", db[1])
	if err := db[1].Revive(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "it to be up again", state("up"))
	same("it has recovered", listen)

	p.Stop(t)
	p = rig.Start(t, yaml(listen, db...))
	same("a restart", listen)

	reversed := slices.Clone(db)
	slices.Reverse(reversed)
	rig.Start(t, yaml(second, reversed...))
	same("a second instance with the reversed list", second)
}

func count(list []string, name string) (n int) {
	for _, s := range list {
		if s == name {
			n++
		}
	}
	return n
}

// whoServes makes one connection from each source address and returns who
// answered it.
func whoServes(t *testing.T, listen string, sources []netip.Addr) []string {
	t.Helper()
	names := make([]string, len(sources))
	next := make(chan int)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for i := range next {
				d := net.Dialer{Timeout: rig.Patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(sources[i], 0))}
				conn, err := d.Dial("tcp", listen)
				if err != nil {
					t.Error(err)
					continue
				}
				c := &rig.Client{Conn: conn, Reader: bufio.NewReader(conn)}
				if names[i], err = c.Ask(); err != nil {
					t.Errorf("from %v: %v", sources[i], err)
				}
				c.Close()
			}
		})
	}
	for i := range sources {
		next <- i
	}
	close(next)
	clients.Wait()
	return names
}
