package lab

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// Case O-05 (c): a client that is off, and no idle limit. Keepalive finds out, and
// both sides are closed.
func TestLabVanishedClient(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	ended := make(chan error, 1)
	address := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, func(c net.Conn, _ <-chan struct{}) {
		_, _ = io.CopyN(c, c, 4)
		_, err := c.Read(make([]byte, 1))
		ended <- err
	})
	p := rig.StartOn(t, l, rig.WebConfig(rig.LabFront, "timeouts: {idle: 0s}, keepalive: {idle: 1s, interval: 1s, probes: 3}",
		"balance: round-robin, check: {type: none}", rig.Member("db1", address)))
	c, err := l.Client.Dial(netip.Addr{}, rig.LabFront, rig.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}

	l.Client.Run(t, "ip", "link", "set", lab.FrontLink, "down")
	began := time.Now()
	select {
	case err := <-ended:
		// 1 s of quiet and 3 probes: 4 s.
		if after := time.Since(began); after < 2*time.Second || err == nil {
			t.Errorf("the backend's side was closed after %v, %v", after, err)
		}
	case <-time.After(rig.Patience):
		t.Fatal("the backend's side stays open")
	}
	rig.Eventually(t, "the client's side to be closed", func() bool { return p.Status(t).Connections == 0 })
	if out := l.Balancer.Run(t, "ss", "-Htn", "sport", "=", ":7000"); out != "" {
		t.Errorf("left:\n%s", out)
	}
}

// The mirror of O-05 (c): a backend that is off while it owes an answer.
func TestLabVanishedBackend(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	address := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, rig.Echo)
	p := rig.StartOn(t, l, rig.WebConfig(rig.LabFront, "timeouts: {idle: 0s}, keepalive: {idle: 1s, interval: 1s, probes: 3}",
		"balance: round-robin, check: {type: none}", rig.Member("db1", address)))
	c, err := l.Client.Dial(netip.Addr{}, rig.LabFront, rig.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // keepalive is set up on connections that are not short
	l.Backend1.Run(t, "ip", "link", "set", lab.BackLink, "down")
	if err := c.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || rig.IsTimeout(err) {
		t.Errorf("the client's side: %v", err)
	}
	rig.Eventually(t, "the backend's side to be closed", func() bool { return p.Status(t).Connections == 0 })
}

// Case O-10: a host whose packets are dropped. A client that is sent to it goes
// elsewhere after the connect timeout.
func TestLabSilentBackend(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	silent := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, rig.Echo)
	well := rig.ServeAt(t, l.Backend2, lab.Backend2Addr, rig.Echo)
	l.Backend1.Run(t, "nft", "add table inet lab; add chain inet lab in { type filter hook input priority 0; }; add rule inet lab in tcp dport "+rig.LabPort+" drop")
	const limit = time.Second
	p := rig.StartOn(t, l, rig.WebConfig(rig.LabFront, "timeouts: {connect: "+limit.String()+"}",
		"balance: first, check: {type: none}, passive: {failures: 0}", rig.Member("silent", silent), rig.Member("well", well)))
	for range 3 {
		began := time.Now()
		c, err := l.Client.Dial(netip.Addr{}, rig.LabFront, rig.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		c.Close()
		if took := time.Since(began); took < limit || took > rig.Patience/2 {
			t.Errorf("it took %v", took)
		}
	}
	if n := p.Metrics(t)[`poise_backend_connect_failures_total{backend="silent",pool="web",reason="timeout"}`]; n != 3 {
		t.Errorf("%v timeouts are counted", n)
	}
	l.Backend1.Run(t, "nft", "flush", "ruleset")
	if _, err := l.Balancer.Dial(netip.Addr{}, silent, rig.Patience); err != nil {
		t.Errorf("it is well again: %v", err)
	}
}

// Case O-35: 50 local ports and two backends are 100 connections, with a source
// address and without.
func TestLabLocalPorts(t *testing.T) {
	t.Parallel()
	const ports = 50
	for _, source := range []string{"", "source: " + lab.BackAddr.String() + ", "} {
		name := "any source"
		if source != "" {
			name = "fixed source"
		}
		t.Run(name, func(t *testing.T) {
			l := lab.New(t)
			be1 := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, rig.Echo)
			be2 := rig.ServeAt(t, l.Backend2, lab.Backend2Addr, rig.Echo)
			p := rig.StartOn(t, l, rig.WebConfig(rig.LabFront, "", source+"balance: round-robin, check: {type: none}, passive: {failures: 3}",
				rig.Member("be1", be1), rig.Member("be2", be2)))
			l.Balancer.Set(t, "net.ipv4.ip_local_port_range", fmt.Sprintf("40000 %d", 40000+ports-1))
			// As configs/sysctl has it: a port in TIME-WAIT is free after a second.
			l.Balancer.Set(t, "net.ipv4.tcp_tw_reuse", "1")

			var open []net.Conn
			works := func() bool {
				t.Helper()
				c, err := l.Client.Dial(netip.Addr{}, rig.LabFront, rig.Patience)
				if (rig.Reading{Err: err}).Reset() {
					return false // before connect has returned
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				began := time.Now()
				_ = c.SetDeadline(began.Add(rig.Patience))
				_, _ = io.WriteString(c, "ping")
				if _, err = io.ReadFull(c, make([]byte, 4)); err == nil {
					open = append(open, c)
					return true
				}
				if took := time.Since(began); rig.IsTimeout(err) || took > rig.Patience/2 {
					t.Errorf("refused after %v: %v", took, err)
				}
				return false
			}
			for i := range 80 {
				if !works() {
					t.Fatalf("the %dth does not work", i+1)
				}
			}
			for _, name := range []string{"be1", "be2"} {
				if b := p.Backend(t, "web", name); b.Connections != 40 {
					t.Errorf("%+v", b)
				}
			}
			refused := 0
			for range 30 {
				if !works() {
					refused++
				}
			}
			if n := len(open); n < 2*ports-2 || n > 2*ports {
				t.Errorf("%d connections work", n)
			}
			m := p.Metrics(t)
			if n := m[`poise_sessions_total{outcome="no_local_port",service="web"}`]; n != float64(refused) || refused == 0 {
				t.Errorf("%v of %d refusals are counted", n, refused)
			}
			if n := m[`poise_service_refused_total{reason="no_local_port",service="web"}`]; n != float64(refused) {
				t.Errorf("%v of %d are counted as refused", n, refused)
			}
			for _, name := range []string{"be1", "be2"} {
				if b := p.Backend(t, "web", name); b.State != "up" {
					t.Errorf("a backend is blamed: %+v", b)
				}
			}

			// Half of them end, by the clients' closing: the ports are in TIME-WAIT.
			half := len(open) / 2
			for _, c := range open[:half] {
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
			open = open[half:]
			rig.Eventually(t, "the balancer to have noticed", func() bool { return p.Status(t).Connections == int64(len(open)) })
			// Each port is free a second after its own connection has ended, by a clock of seconds.
			for range 10 {
				rig.Eventually(t, "a new one to work", works)
			}
		})
	}
}
