package udp

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// What can be seen of UDP from outside: status, conns, metrics, the access log.
func TestUDPShows(t *testing.T) {
	listen := rig.UDPAddr(t)
	p := rig.Start(t, "log: {access_format: json}\n"+rig.UDPConfig(listen, "idle: 1h", "balance: first, check: {type: none}",
		rig.Member("a", rig.StartTeller(t, "a"))))
	one, two := rig.DialUDP(t, listen), rig.DialUDP(t, listen)
	for range 3 {
		one.MustAsk(t)
	}
	_, from := two.MustAsk(t)
	if netip.MustParseAddrPort(from).Port() == two.LocalAddr().(*net.UDPAddr).AddrPort().Port() {
		t.Errorf("the backend sees the client itself: %s", from)
	}
	in, out := 4*len("request-1"), 4*len("a 127.0.0.1:40000 request-1")

	s := p.Status(t)
	svc := s.Services[0]
	if s.Connections != 2 || svc.Protocol != "udp" || svc.Connections != 2 || svc.Total != 2 || svc.Listen[0] != listen || svc.State != "up" {
		t.Errorf("status: %+v", svc)
	}
	if svc.UDP == nil || svc.UDP.DatagramsIn != 4 || svc.UDP.DatagramsOut != 4 || svc.BytesIn != uint64(in) || svc.BytesOut != uint64(out) || len(svc.UDP.Dropped) != 0 {
		t.Errorf("status: %+v, %+v", svc, svc.UDP)
	}
	if b := p.Backend(t, "web", "a"); b.Connections != 2 || b.Total != 2 || b.BytesIn != uint64(in) || b.BytesOut != uint64(out) {
		t.Errorf("backend: %+v", b)
	}
	stdout, _, code := rig.CLI(t, "status", "--socket", p.Socket())
	if code != 0 || !strings.Contains(stdout, "udp") {
		t.Errorf("exit code %d\n%s", code, stdout)
	}

	conns := p.Conns(t)
	if len(conns) != 2 {
		t.Fatalf("%d are listed: %+v", len(conns), conns)
	}
	c := conns[0] // the oldest
	if c.Proto != "udp" || c.Client.String() != one.LocalAddr().String() || c.Local.String() != listen || c.Service != "web" || c.Pool != "web" ||
		c.Backend != "a" || c.State != "open" || c.DatagramsIn != 3 || c.DatagramsOut != 3 || c.BytesIn != uint64(in/4*3) {
		t.Errorf("%+v", c)
	}
	stdout, _, code = rig.CLI(t, "conns", "--socket", p.Socket())
	if code != 0 || !strings.Contains(stdout, one.LocalAddr().String()) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}

	m := p.Metrics(t)
	for series, want := range map[string]float64{
		`poise_service_connections{service="web"}`:                                2,
		`poise_service_connections_total{service="web"}`:                          2,
		`poise_service_datagrams_total{direction="in",service="web"}`:             4,
		`poise_service_datagrams_total{direction="out",service="web"}`:            4,
		`poise_service_bytes_total{direction="in",service="web"}`:                 float64(in),
		`poise_service_bytes_total{direction="out",service="web"}`:                float64(out),
		`poise_udp_dropped_total{reason="refused",service="web"}`:                 0,
		`poise_backend_connections{backend="a",pool="web"}`:                       2,
		`poise_backend_connections_total{backend="a",pool="web"}`:                 2,
		`poise_backend_first_byte_duration_seconds_count{backend="a",pool="web"}`: 2,
	} {
		if got, ok := m[series]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", series, got, ok, want)
		}
	}

	p.MustReload(t, "log: {access_format: json}\n"+rig.UDPConfig(listen, "idle: 100ms", "balance: first, check: {type: none}", rig.Member("a", rig.StartTeller(t, "b"))))
	one.MustAsk(t) // takes up the new limit, with another backend
	two.MustAsk(t)
	rig.Eventually(t, "the sessions to end", func() bool { return p.Status(t).Connections == 0 })
	rig.Eventually(t, "nothing to be listed", func() bool { return len(p.Conns(t)) == 0 })
	// A datagram that is refused is counted, and one of them is in the access log.
	p.MustReload(t, "log: {access_format: json}\n"+rig.UDPConfig(listen, "", "check: {type: none}", rig.Member("a", rig.Addr(t), "weight: 0")))
	one.Refused(t, p, "no_backend")
	one.Refused(t, p, "no_backend")
	if n := p.Metrics(t)[`poise_udp_dropped_total{reason="refused",service="web"}`]; n != 2 {
		t.Errorf("%v are dropped", n)
	}
	if got := p.Status(t).Services[0]; got.Refused["no_backend"] != 2 || got.UDP.Dropped["refused"] != 2 {
		t.Errorf("%+v, %+v", got, got.UDP)
	}
	rig.Eventually(t, "its line in the access log", func() bool { return bytes.Contains([]byte(p.Stdout()), []byte(`"no_backend"`)) })
}
