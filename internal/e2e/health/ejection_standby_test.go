package health

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// redisOf answers checks as a server whose role can change.
func redisOf(role *atomic.Value) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, _ <-chan struct{}) {
		lines := bufio.NewScanner(c)
		for lines.Scan() {
			switch strings.ToUpper(lines.Text()) {
			case "PING":
				fmt.Fprint(c, "+PONG\r\n")
			case "REPLICATION":
				info := fmt.Sprintf("role:%s\r\nmaster_link_status:up\r\n", role.Load())
				fmt.Fprintf(c, "$%d\r\n%s\r\n", len(info), info)
			}
		}
	}
}

// The only primary that could serve is not ejected for the company of a standby, which
// gets no connections whatever becomes of the primary. When both serve, it is.
func TestEjectionReckonsWithoutStandby(t *testing.T) {
	t.Parallel()
	var roleA, roleB atomic.Value
	roleA.Store("master")
	roleB.Store("slave")
	checks, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rig.ServeOn(t, checks, redisOf(&roleA))
	_, port, _ := net.SplitHostPort(checks.Addr().String())
	second, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	rig.ServeOn(t, second, redisOf(&roleB))

	// To clients both refuse.
	listen, a, b := rig.Addr(t), rig.Addr(t), strings.Replace(rig.Addr(t), "127.0.0.1", "127.0.0.2", 1)
	p := rig.Start(t, rig.WebConfig(listen, "", fmt.Sprintf("check: {type: redis, port: %s, interval: 50ms, redis: {role: primary}}, passive: {failures: 3, base: 1m}", port),
		rig.Member("a", a), rig.Member("b", b)))
	state := func(name, want string) {
		t.Helper()
		rig.Eventually(t, name+" to be "+want, func() bool {
			_, _ = rig.Ask(listen)
			return p.Backend(t, "web", name).State == want
		})
	}
	// Before its first answer b counts as up, so that clients may rightly eject a.
	rig.Eventually(t, "b to be standby", func() bool { return p.Backend(t, "web", "b").State == "standby" })
	for range 30 {
		_, _ = rig.Ask(listen)
	}
	if n := p.Metrics(t).Sum("poise_backend_ejections_total"); n != 0 || p.Backend(t, "web", "a").State != "up" {
		t.Fatalf("the only primary is %s, %v ejections", p.Backend(t, "web", "a").State, n)
	}
	roleB.Store("master")
	rig.Eventually(t, "one of two primaries to be ejected", func() bool {
		_, _ = rig.Ask(listen)
		return len(ejections(t, p)) == 1
	})
	roleA.Store("slave")
	roleB.Store("slave")
	state("b", "standby")
	roleA.Store("master")
	state("a", "up")
}
