package reload

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// A reload that makes a listener wider or narrower costs no client anything: not the
// first datagram of a new one, not a session, and not a connection that has to ask
// again, which would take a second.
func TestReloadWidensAndNarrows(t *testing.T) {
	t.Parallel()
	db1 := rig.Backend(t, "db1", loadgen.Behaviour{})
	a := rig.StartTeller(t, "a")
	listen := rig.UDPAddr(t) // free for TCP too
	_, port, _ := net.SplitHostPort(listen)
	yaml := func(addrs ...string) string {
		var list []string
		for _, a := range addrs {
			list = append(list, fmt.Sprintf("%q", a+":"+port))
		}
		all := strings.Join(list, ", ")
		return fmt.Sprintf("services:\n  web: {listen: [%s], pool: web}\n  dns: {protocol: udp, listen: [%s], pool: dns, udp: {idle: 1h}}\npools:\n%s  dns: {check: {type: none}, backends: [%q]}\n",
			all, all, rig.OnePool("web", "least-conn", "", db1), a)
	}
	steps := [][]string{{"127.0.0.1"}, {"0.0.0.0"}, {"127.0.0.1"}, {""}, {"127.0.0.1", "[::1]"}, {""}, {"0.0.0.0", "[::]"}, {"0.0.0.0"}}
	p := rig.Start(t, yaml(steps[0]...))
	old := rig.DialUDP(t, listen)
	_, from := old.MustAsk(t)

	var slowest atomic.Int64
	connecting := rig.Repeat(t, 2, 2*time.Millisecond, func() error {
		before := time.Now()
		err := exchange(listen)
		if took := int64(time.Since(before)); took > slowest.Load() {
			slowest.Store(took)
		}
		return err
	})
	asking := rig.Repeat(t, 2, 2*time.Millisecond, func() error {
		c, err := net.Dial("udp", listen)
		if err != nil {
			return err
		}
		defer c.Close()
		fresh := &rig.UDPClient{UDPConn: c.(*net.UDPConn)}
		_, _, err = fresh.Ask()
		return err
	})
	for _, step := range steps[1:] {
		p.MustReload(t, yaml(step...))
		connecting.More(t, 20)
		asking.More(t, 20)
		if _, now := old.MustAsk(t); now != from {
			t.Errorf("%v: the session from %s is one from %s", step, from, now)
		}
	}
	connected, asked := connecting.Stop(), asking.Stop()
	t.Logf("%d connections, the slowest took %v; %d datagrams", connected, time.Duration(slowest.Load()), asked)
}
