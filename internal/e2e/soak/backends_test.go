package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// soakBackends is one backend of each kind. All that send anything send back what
// they got.
type soakBackends struct {
	calm     [2]*loadgen.Backend // of the calm service
	well     [2]*loadgen.Backend
	dying    [2]*loadgen.Backend // killed, stopped and revived
	muffled  *loadgen.Backend    // its SYNs are swallowed for a while
	resets   string              // after some bytes
	silent   string              // takes connections and does nothing with them
	slow     string              // a few bytes at a time
	refusing string
	mute     string // swallows SYNs
}

func newSoakBackends(t *testing.T) *soakBackends {
	b := &soakBackends{refusing: rig.Addr(t), mute: rig.MuteAddr(t)}
	for i := range b.calm {
		b.calm[i] = rig.Backend(t, fmt.Sprintf("calm%d", i+1), loadgen.Behaviour{Mode: loadgen.Echo})
		b.well[i] = rig.Backend(t, fmt.Sprintf("well%d", i+1), loadgen.Behaviour{Mode: loadgen.Echo})
		b.dying[i] = rig.Backend(t, fmt.Sprintf("dying%d", i+1), loadgen.Behaviour{Mode: loadgen.Echo})
	}
	b.muffled = rig.Backend(t, "muffled", loadgen.Behaviour{Mode: loadgen.Echo})
	b.resets = rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		_, _ = io.CopyN(c, c, rand.Int64N(100_000))
		rig.Reset(c)
	})
	b.silent = rig.Serve(t, func(c *net.TCPConn, done <-chan struct{}) {
		select { // for longer than the balancer puts up with
		case <-done:
		case <-time.After(10 * time.Second):
		}
	})
	b.slow = rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		buf := make([]byte, 2000)
		for {
			n, err := c.Read(buf)
			if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
				return
			}
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		}
	})
	return b
}

// misbehave makes those that can be ill so, now and then.
func (b *soakBackends) misbehave(ctx context.Context, t *testing.T, r *rand.Rand) {
	var gag io.Closer // while the muffled one is
	defer func() {
		if gag != nil {
			gag.Close()
		}
	}()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d := b.dying[r.IntN(len(b.dying))]
		var err error
		switch r.IntN(5) {
		case 0:
			d.Kill()
		case 1:
			err = d.Stop()
		case 2, 3:
			err = d.Revive()
		case 4:
			if gag != nil {
				gag.Close()
				gag = nil
				err = b.muffled.Revive()
			} else if err = b.muffled.Stop(); err == nil {
				gag, err = rig.SwallowSYNs(b.muffled.Addr())
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// recover makes well again who can be.
func (b *soakBackends) recover(t *testing.T) {
	for _, d := range []*loadgen.Backend{b.dying[0], b.dying[1], b.muffled} {
		if err := d.Revive(); err != nil {
			t.Error(err)
		}
	}
}

// soakConfigs is how many configurations there are.
const soakConfigs = 8

// config returns one of them. The calm service is in all of them, its pool is
// another one now and then; 0 is what runs when all is quiet, and soakConfigs has
// everything that is in any of the others.
func (s *soak) config(i int) string {
	b := s.backends
	all := []string{
		rig.Member("well1", b.well[0].Addr()), rig.Member("well2", b.well[1].Addr(), "weight: 50"),
		rig.Member("dying1", b.dying[0].Addr()), rig.Member("dying2", b.dying[1].Addr()), rig.Member("muffled", b.muffled.Addr()),
		rig.Member("resets", b.resets), rig.Member("silent", b.silent), rig.Member("slow", b.slow),
		rig.Member("refusing", b.refusing), rig.Member("mute", b.mute),
	}
	const checks = "check: {type: tcp, interval: 200ms, fast_interval: 100ms, down_interval: 300ms, timeout: 200ms, rise: 1, fall: 2}"
	balance := []string{"round-robin", "least-conn", "p2c", "random", "maglev", "first", "least-conn", "round-robin", "random"}[i]
	abused, calm, timeouts, limits := all, "calm", "connect: 500ms, idle: 2s, half_close: 1s", ""
	more := checks
	calmPool := func(name string) string {
		return fmt.Sprintf("%s: {balance: %s, check: {type: tcp, interval: 500ms}, backends: [%s, %s]}", name, balance,
			rig.Member("calm1", b.calm[0].Addr()), rig.Member("calm2", b.calm[1].Addr()))
	}
	services := []string{fmt.Sprintf("extra: {listen: [%q], pool: abused}", s.extra)}
	pools := []string{}
	switch i {
	case 1: // the end of open connections is another backend's end
		more = checks + ", on_down: close, passive: {failures: 2, base: 1s, max: 2s, max_percent: 100}"
	case 2: // no defence
		more, services = "check: {type: none}, passive: {failures: 0}", nil
		timeouts = "connect: 200ms, connect_total: 300ms, idle: 1s, half_close: 500ms"
	case 3: // fewer
		abused = []string{all[0], all[3], all[5], all[7]}
	case 4: // others, in another order, under the name of those that were
		abused = []string{rig.Member("well1", b.well[1].Addr()), all[6], rig.Member("resets", b.slow, "backup: true"), all[4], rig.Member("dying2", b.dying[0].Addr(), "weight: 0")}
	case 5: // limits, and an algorithm that takes no weights
		abused = append([]string{all[0], rig.Member("well2", b.well[1].Addr())}, all[2:]...)
		limits, more = "max_connections: 20, ", checks+", max_connections: 5"
		services = nil
	case 6: // the calm service has another pool of the same backends
		calm = "calm2"
	case 7: // none that can be used
		abused = []string{rig.Member("well1", b.well[0].Addr(), "weight: 0"), all[8]}
	case soakConfigs:
		services = append(services, fmt.Sprintf("spare: {listen: [%q], pool: calm2}", s.spare))
		pools = append(pools, calmPool("calm2"))
	}
	pools = append(pools,
		fmt.Sprintf("abused: {balance: %s, %s, backends: [%s]}", balance, more, strings.Join(abused, ", ")),
		calmPool(calm))
	services = append(services,
		fmt.Sprintf("abused: {listen: [%q], pool: abused, %stimeouts: {%s}}", s.abused, limits, timeouts),
		fmt.Sprintf("calm: {listen: [%q], pool: %s}", s.calm, calm))
	return fmt.Sprintf("log: {access: %s}\nservices:\n  %s\npools:\n  %s\n", s.access, strings.Join(services, "\n  "), strings.Join(pools, "\n  "))
}

// randomSource is one of the many addresses of this host, so that clients do not
// run out of ports.
func randomSource(r *rand.Rand) *net.TCPAddr {
	a := netip.AddrFrom4([4]byte{127, byte(1 + r.IntN(200)), byte(r.IntN(256)), byte(1 + r.IntN(200))})
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
}
