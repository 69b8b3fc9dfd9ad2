package tcp_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// A client that makes its connections fail in a loop uses up retries, but not those of
// clients that meet a dead backend. Before, all of these were denied theirs.
func TestBudgetOutlastsNonsense(t *testing.T) {
	const attacks, honest = 20, 4
	for name, adjust := range map[string]func(*tcp.Route){
		"replayed": func(r *tcp.Route) { r.To.Replay = 1000 },
		"refused by whom they were introduced to": func(r *tcp.Route) {
			r.To.Proxy.Version, r.To.TLS = 2, backendTLS(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			picky := func(name string) balance.BackendSpec {
				return named(serve(t, func(c *net.TCPConn) {
					c.Read(make([]byte, 100))
					reset(c)
				}), name)
			}
			b := []balance.BackendSpec{picky("first"), picky("second")}
			p := start(t, b, adjust)
			p.route.To.Pool.Update(balance.Spec{Algorithm: "first", Backends: b, Retry: balance.RetryBudget{Floor: 1}})
			from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			for i := range attacks {
				if c, err := from.Dial("tcp", p.addr); err == nil { // else the reset was faster
					c.Write([]byte("nonsense"))
					defer c.Close()
				}
				p.ended(i + 1)
			}
			had := map[netip.Addr]int{}
			sum := func() map[netip.Addr]int {
				clear(had)
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, s := range p.sessions {
					had[s.Flow.Client.Addr()] += s.Retries
				}
				return had
			}
			attacker, client := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
			if n := sum()[attacker]; n == 0 {
				t.Error("no nonsense was sent to another backend: nothing is tested")
			}
			b[0] = named(dead(t), "dead")
			p.route.To.Pool.Update(balance.Spec{Algorithm: "first", Backends: b, Retry: balance.RetryBudget{Floor: 1}})
			for i := range honest {
				p.refused("ping") // or answered with a reset: the dead backend is what counts
				p.ended(attacks + i + 1)
			}
			if n := sum()[client]; n != honest {
				t.Errorf("%d of %d clients of a dead backend were given another, after %d retries of one that sends nonsense", n, honest, had[attacker])
			}
		})
	}
}
