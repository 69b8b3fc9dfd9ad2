package daemon

import (
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// TestRecentPercentiles: what is a minute old is forgotten, a backend that has gone is
// forgotten altogether, and one without connections costs nothing.
func TestRecentPercentiles(t *testing.T) {
	spec := balance.Spec{Name: "p", Algorithm: "round-robin"}
	for name, addr := range map[string]string{"busy": "127.0.0.1:1", "idle": "127.0.0.1:2"} {
		spec.Backends = append(spec.Backends, balance.BackendSpec{Name: name, Addr: balance.Address{AddrPort: netip.MustParseAddrPort(addr)}, Weight: 1})
	}
	pools := []*balance.Pool{balance.New(spec, nil)}
	connects := &pools[0].Backends()[0].Stats.ConnectTime
	var r recent
	p99 := func() time.Duration {
		now := r.of(connects, connects.Counts())
		return now.Quantile(0.99)
	}
	for range 100 {
		connects.Observe(time.Second)
	}
	if got := p99(); got < 900*time.Millisecond {
		t.Errorf("at once: %v", got)
	}
	for range l4.WindowTicks {
		r.tick(pools)
		connects.Observe(time.Millisecond)
	}
	if got := p99(); got < 900*time.Millisecond {
		t.Errorf("within the minute: %v", got)
	}
	r.tick(pools)
	if got := p99(); got > 2*time.Millisecond || got == 0 {
		t.Errorf("after a minute: %v", got)
	}
	if n := len(r.windows); n != 1 {
		t.Errorf("%d windows", n)
	}
	r.tick(nil)
	if n := len(r.windows); n != 0 {
		t.Errorf("%d windows of pools that have gone", n)
	}
}
