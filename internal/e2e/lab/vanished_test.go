package lab

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// Case O-43: a machine that vanishes with bytes on the way to it is noticed in the time
// that keepalive promises, whether its link is down or its packets are dropped, be it
// few bytes or many; not without keepalive.
func TestLabBackendVanishesWithBytesInFlight(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	down := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, rig.Echo)
	dropped := rig.ServeAt(t, l.Backend2, lab.Backend2Addr, rig.Echo)
	const keepalive = "keepalive: {%s}, timeouts: {idle: 0s}"
	yaml := "services:\n"
	for i, pool := range []string{"down", "dropped"} {
		yaml += fmt.Sprintf("  %s: {listen: [\"10.77.0.10:700%d\"], pool: %s, "+keepalive+"}\n", pool, i, pool, "idle: 1s, interval: 1s, probes: 3")
	}
	yaml += fmt.Sprintf("  patient: {listen: [\"10.77.0.10:7002\"], pool: down, "+keepalive+"}\n", "probes: 0")
	yaml += fmt.Sprintf("pools:\n  down: {check: {type: none}, backends: [%s]}\n  dropped: {check: {type: none}, backends: [%s]}\n",
		rig.Member("db1", down), rig.Member("db2", dropped))
	p := rig.StartOn(t, l, yaml)

	open := func(addr string) net.Conn { return answered(t, l, addr, nil) }
	var waiting []net.Conn
	sizes := []int{15, 1 << 20}
	for i := range 2 {
		for range sizes {
			waiting = append(waiting, open(fmt.Sprintf("10.77.0.10:700%d", i)))
		}
	}
	patient := open("10.77.0.10:7002")
	l.Backend1.Run(t, "ip", "link", "set", lab.BackLink, "down")
	l.Backend2.Run(t, "nft", "add table inet lab; add chain inet lab in { type filter hook input priority 0; }; add rule inet lab in tcp dport "+rig.LabPort+" drop")
	for i, c := range append(waiting, patient) {
		if _, err := c.Write(make([]byte, sizes[i%2])); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range waiting {
		if err := endOf(c); !(rig.Reading{Err: err}).Reset() {
			t.Errorf("%d: the client's side: %v", i, err)
		}
	}
	if n := p.Status(t).Connections; n != 1 {
		t.Errorf("%d connections are open, want the one without keepalive", n)
	}
	for _, service := range []string{"down", "dropped"} {
		if n := p.Metrics(t)[`poise_sessions_total{outcome="backend_reset",service="`+service+`"}`]; n != 2 {
			t.Errorf("%s: %v ended as the backend's doing", service, n)
		}
	}
}

// Case O-43, the other side: clients that vanish in the middle of a download, in plain
// text and in TLS, and one that only does not read.
func TestLabClientVanishesInDownload(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	const size = 16 << 20
	address := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, func(c net.Conn, done <-chan struct{}) {
		_, _ = io.CopyN(c, c, 4)
		_, _ = c.Write(make([]byte, size))
		<-done
	})
	leaf := rig.NewAuthority(t).Issue(t, "poise.test")
	const keys = "keepalive: {idle: 1s, interval: 1s, probes: 3}, timeouts: {idle: 0s}, pool: web"
	p := rig.StartOn(t, l, fmt.Sprintf("services:\n  plain: {listen: [\"10.77.0.10:7000\"], %s}\n  secure: {listen: [\"10.77.0.10:7001\"], %s, tls: {certificates: [{cert: %q, key: %q}]}}\n"+
		"pools:\n  web: {check: {type: none}, backends: [%s]}\n", keys, keys, leaf.Cert, leaf.Key, rig.Member("db1", address)))
	answered(t, l, "10.77.0.10:7000", nil)
	answered(t, l, "10.77.0.10:7001", &tls.Config{InsecureSkipVerify: true})
	var slow net.Conn // on the balancer's own host, which stays up
	l.Balancer.Do(func() { slow = rig.Connect(t, rig.LabFront) })
	_, _ = io.WriteString(slow, "ping")
	if _, err := io.ReadFull(slow, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}

	l.Client.Run(t, "ip", "link", "set", lab.FrontLink, "down")
	rig.Eventually(t, "the clients that have vanished to be noticed", func() bool { return p.Status(t).Connections == 1 })
	for _, service := range []string{"plain", "secure"} {
		if n := p.Metrics(t)[`poise_sessions_total{outcome="client_reset",service="`+service+`"}`]; n != 1 {
			t.Errorf("%s: %v ended as the client's doing", service, n)
		}
	}
	if n, err := io.CopyN(io.Discard, slow, size); err != nil {
		t.Errorf("the slow client: %d of %d bytes, %v", n, size, err)
	}
}

// answered is a client of a lab that has had an answer from its backend, and whose
// connection is not young any more; in TLS with a configuration.
func answered(t *testing.T, l *lab.Lab, addr string, config *tls.Config) net.Conn {
	t.Helper()
	c, err := l.Client.Dial(netip.Addr{}, addr, rig.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if config != nil {
		c = tls.Client(c, config)
	}
	_ = c.SetDeadline(time.Now().Add(2 * rig.Patience))
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	return c
}

// endOf reads to the end and returns how that was.
func endOf(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}
