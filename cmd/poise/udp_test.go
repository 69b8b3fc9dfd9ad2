package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/lab"
)

// udpPorts is how many ports udpAddr has looked at.
var udpPorts atomic.Uint32

// udpAddr returns an address of loopback whose port is free for UDP and for TCP. It
// is not one of those that clients are given, and every test process begins somewhere
// else, so that it stays free.
func udpAddr(t testing.TB) string {
	t.Helper()
	const first, ports = 20000, 12000
	for range ports {
		n := uint32(os.Getpid())*101 + udpPorts.Add(1)
		a := fmt.Sprintf("127.0.0.1:%d", first+n%ports)
		u, err := net.ListenPacket("udp", a)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", a)
		u.Close()
		if err != nil {
			continue
		}
		l.Close()
		return a
	}
	t.Fatal("no free port")
	return ""
}

// udpConfig is webConfig for a service of UDP. Options are keys of its section udp.
func udpConfig(listen, options, pool string, backends ...string) string {
	return webConfig(listen, "protocol: udp, udp: {"+options+"}", pool, backends...)
}

// listenUDP opens a socket on a host of a lab, or on this one if that is nil.
func listenUDP(t testing.TB, h *lab.Host, addr string) *net.UDPConn {
	t.Helper()
	c, err := tryListenUDP(h, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryListenUDP(h *lab.Host, addr string) (c *net.UDPConn, err error) {
	open := func() { c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))) }
	if h == nil {
		open()
	} else {
		h.Do(open)
	}
	if err == nil {
		_ = c.SetReadBuffer(4 << 20) // as far as the system lets it
	}
	return c, err
}

// An answerer returns what to send back for a datagram.
type answerer func(d []byte, from netip.AddrPort) [][]byte

// answerUDP answers what comes to c until the function it returns is called, or the
// test ends.
func answerUDP(t testing.TB, c *net.UDPConn, answer answerer) (stop func()) {
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				if strings.Contains(err.Error(), net.ErrClosed.Error()) {
					return
				}
				continue // an ICMP error
			}
			for _, a := range answer(buf[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) {
				_, _ = c.WriteToUDPAddrPort(a, from)
			}
		}
	})
	stop = sync.OnceFunc(func() { c.Close(); serving.Wait() })
	t.Cleanup(stop)
	return stop
}

// teller answers with its name, where it sees the datagram come from, and what is
// in it.
func teller(name string) answerer {
	return func(d []byte, from netip.AddrPort) [][]byte {
		return [][]byte{fmt.Appendf(nil, "%s %s %s", name, from, d)}
	}
}

// startTeller starts a teller on loopback for the length of the test.
func startTeller(t testing.TB, name string) (addr string) {
	t.Helper()
	c := listenUDP(t, nil, "127.0.0.1:0")
	answerUDP(t, c, teller(name))
	return c.LocalAddr().String()
}

// A udpClient is one socket that asks tellers through the balancer.
type udpClient struct {
	*net.UDPConn
	asked int
}

// dialUDP connects a client for the length of the test, from the address given if
// there is one.
func dialUDP(t testing.TB, addr string, from ...string) *udpClient {
	t.Helper()
	var local *net.UDPAddr
	if len(from) > 0 {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from[0]), 0))
	}
	c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &udpClient{UDPConn: c}
}

// Ask asks who answers, and where that one sees the request come from.
func (c *udpClient) Ask() (name, from string, err error) {
	return c.askFor(patience)
}

func (c *udpClient) askFor(limit time.Duration) (name, from string, err error) {
	c.asked++
	what := fmt.Sprintf("request-%d", c.asked)
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", "", err
	}
	if _, err := c.Write([]byte(what)); err != nil {
		return "", "", err
	}
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	if err != nil {
		return "", "", err
	}
	f := strings.Fields(string(buf[:n]))
	if len(f) != 3 || f[2] != what {
		return "", "", fmt.Errorf("the answer to %s is %q", what, buf[:n])
	}
	return f[0], f[1], nil
}

// MustAsk is Ask that may not fail.
func (c *udpClient) MustAsk(t testing.TB) (name, from string) {
	t.Helper()
	name, from, err := c.Ask()
	if err != nil {
		t.Fatal(err)
	}
	return name, from
}

// Refused sends a request that is dropped, which shows in the count of a reason, and
// makes sure that nobody has answered it.
func (c *udpClient) Refused(t testing.TB, p *proc, reason string) {
	t.Helper()
	refused := func() float64 {
		return p.Metrics(t)[fmt.Sprintf(`poise_service_refused_total{reason=%q,service="web"}`, reason)]
	}
	before := refused()
	if _, err := c.Write([]byte("refused")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a datagram that is "+reason, func() bool { return refused() == before+1 })
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(make([]byte, 64)); err == nil {
		t.Errorf("an answer of %d bytes to what was %s", n, reason)
	}
}

// ended is the part of a JSON line of the access log that tests of UDP look at.
type ended struct {
	Service, Pool, Backend, Proto, Outcome, By string

	Client       string
	ClientPort   int     `json:"client_port"`
	VIP          string  `json:"vip"`
	FirstByte    float64 `json:"first_byte_ms"`
	Total        float64 `json:"total_ms"`
	BytesIn      int     `json:"bytes_in"`
	BytesOut     int     `json:"bytes_out"`
	DatagramsIn  int     `json:"datagrams_in"`
	DatagramsOut int     `json:"datagrams_out"`
	Retries      int     `json:"retries"`
}

// Ended returns the lines of a JSON access log so far.
func (p *proc) Ended(t testing.TB) (list []ended) {
	t.Helper()
	log := p.Stdout()
	for line := range strings.Lines(log[:strings.LastIndexByte(log, '\n')+1]) {
		var e ended
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

// EndOf returns the line of a client's session, which may take a moment to be there.
func (p *proc) EndOf(t testing.TB, c *udpClient) (e ended) {
	t.Helper()
	port := c.LocalAddr().(*net.UDPAddr).Port
	eventually(t, "the session to end", func() bool {
		for _, e = range p.Ended(t) {
			if e.ClientPort == port {
				return true
			}
		}
		return false
	})
	return e
}

// Conns lists the open connections.
func (p *proc) Conns(t testing.TB) []admin.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := admin.NewClient(p.socket()).Conns(ctx, admin.ConnQuery{Limit: admin.MaxConns})
	if err != nil {
		t.Fatal(err)
	}
	return l.Conns
}

// What can be seen of UDP from outside: status, conns, metrics, the access log.
func TestUDPShows(t *testing.T) {
	listen := udpAddr(t)
	p := start(t, "log: {access_format: json}\n"+udpConfig(listen, "idle: 1h", "balance: first, check: {type: none}",
		member("a", startTeller(t, "a"))))
	one, two := dialUDP(t, listen), dialUDP(t, listen)
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
	stdout, _, code := cli(t, "status", "--socket", p.socket())
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
	stdout, _, code = cli(t, "conns", "--socket", p.socket())
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

	p.MustReload(t, "log: {access_format: json}\n"+udpConfig(listen, "idle: 100ms", "balance: first, check: {type: none}", member("a", startTeller(t, "b"))))
	one.MustAsk(t) // takes up the new limit, with another backend
	two.MustAsk(t)
	eventually(t, "the sessions to end", func() bool { return p.Status(t).Connections == 0 })
	eventually(t, "nothing to be listed", func() bool { return len(p.Conns(t)) == 0 })
	// A datagram that is refused is counted, and one of them is in the access log.
	p.MustReload(t, "log: {access_format: json}\n"+udpConfig(listen, "", "check: {type: none}", member("a", addr(t), "weight: 0")))
	one.Refused(t, p, "no_backend")
	one.Refused(t, p, "no_backend")
	if n := p.Metrics(t)[`poise_udp_dropped_total{reason="refused",service="web"}`]; n != 2 {
		t.Errorf("%v are dropped", n)
	}
	if got := p.Status(t).Services[0]; got.Refused["no_backend"] != 2 || got.UDP.Dropped["refused"] != 2 {
		t.Errorf("%+v, %+v", got, got.UDP)
	}
	eventually(t, "its line in the access log", func() bool { return bytes.Contains([]byte(p.Stdout()), []byte(`"no_backend"`)) })
}
