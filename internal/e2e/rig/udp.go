package rig

import (
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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/lab"
)

// UDPAddr chooses among so many ports.
const firstUDPPort, udpPorts = 20000, 12000

// nextUDPPort is the one that UDPAddr tries next, counted from the first, modulo their
// number. Test processes begin at different ones.
var nextUDPPort atomic.Uint32

func init() { nextUDPPort.Store(uint32(os.Getpid()) * 101) }

// UDPAddr returns an address of loopback whose port is free for UDP and for TCP. It
// is not one of those that clients are given, and no other test gets it while this one
// runs, not of another part either: an abstract unix socket that is named after the port
// is bound until then.
func UDPAddr(t testing.TB) string {
	t.Helper()
	for range udpPorts {
		port := firstUDPPort + nextUDPPort.Add(1)%udpPorts
		claim, err := net.Listen("unix", fmt.Sprintf("@poise-test-%d", port))
		if err != nil {
			continue
		}
		a := fmt.Sprintf("127.0.0.1:%d", port)
		if !free(a) {
			claim.Close()
			continue
		}
		t.Cleanup(func() { claim.Close() })
		return a
	}
	t.Fatal("no free port")
	return ""
}

// free reports whether sockets of UDP and of TCP can be bound to an address.
func free(addr string) bool {
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	defer u.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// ListenUDP opens a socket on a host of a lab, or on this one if that is nil.
func ListenUDP(t testing.TB, h *lab.Host, addr string) *net.UDPConn {
	t.Helper()
	c, err := TryListenUDP(h, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TryListenUDP(h *lab.Host, addr string) (c *net.UDPConn, err error) {
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

// An Answerer returns what to send back for a datagram.
type Answerer func(d []byte, from netip.AddrPort) [][]byte

// AnswerUDP answers what comes to c until the function it returns is called, or the
// test ends.
func AnswerUDP(t testing.TB, c *net.UDPConn, answer Answerer) (stop func()) {
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

// Teller answers with its name, where it sees the datagram come from, and what is
// in it.
func Teller(name string) Answerer {
	return func(d []byte, from netip.AddrPort) [][]byte {
		return [][]byte{fmt.Appendf(nil, "%s %s %s", name, from, d)}
	}
}

// StartTeller starts a teller on loopback for the length of the test.
func StartTeller(t testing.TB, name string) (addr string) {
	t.Helper()
	c := ListenUDP(t, nil, "127.0.0.1:0")
	AnswerUDP(t, c, Teller(name))
	return c.LocalAddr().String()
}

// A UDPClient is one socket that asks tellers through the balancer.
type UDPClient struct {
	*net.UDPConn
	asked int
}

// DialUDP connects a client for the length of the test, from the address given if
// there is one.
func DialUDP(t testing.TB, addr string, from ...string) *UDPClient {
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
	return &UDPClient{UDPConn: c}
}

// Ask asks who answers, and where that one sees the request come from.
func (c *UDPClient) Ask() (name, from string, err error) {
	return c.AskFor(Patience)
}

// AskFor is Ask with a limit to the wait for the answer.
func (c *UDPClient) AskFor(limit time.Duration) (name, from string, err error) {
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
func (c *UDPClient) MustAsk(t testing.TB) (name, from string) {
	t.Helper()
	name, from, err := c.Ask()
	if err != nil {
		t.Fatal(err)
	}
	return name, from
}

// Refused sends a request that is dropped, which shows in the count of a reason, and
// makes sure that no backend has answered it.
func (c *UDPClient) Refused(t testing.TB, p *Proc, reason string) {
	t.Helper()
	refused := func() float64 {
		return p.Metrics(t)[fmt.Sprintf(`poise_service_refused_total{reason=%q,service="web"}`, reason)]
	}
	before := refused()
	if _, err := c.Write([]byte("refused")); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "a datagram that is "+reason, func() bool { return refused() == before+1 })
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(make([]byte, 64)); err == nil {
		t.Errorf("an answer of %d bytes to what was %s", n, reason)
	}
}

// Ended is the part of a JSON line of the access log that tests of UDP look at.
type Ended struct {
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
func (p *Proc) Ended(t testing.TB) (list []Ended) {
	t.Helper()
	log := p.Stdout()
	for line := range strings.Lines(log[:strings.LastIndexByte(log, '\n')+1]) {
		var e Ended
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

// EndOf returns the line of a client's session, which may take a moment to be there.
func (p *Proc) EndOf(t testing.TB, c *UDPClient) (e Ended) {
	t.Helper()
	port := c.LocalAddr().(*net.UDPAddr).Port
	Eventually(t, "the session to end", func() bool {
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
func (p *Proc) Conns(t testing.TB) []admin.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	l, err := admin.NewClient(p.Socket()).Conns(ctx, admin.ConnQuery{Limit: admin.MaxConns})
	if err != nil {
		t.Fatal(err)
	}
	return l.Conns
}

// Receive returns what comes next: a datagram, or several of a train.
func (c *UDPClient) Receive(t *testing.T) (list [][]byte) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	buf, oob := make([]byte, 1<<17), make([]byte, 128)
	n, oobn, flags, _, err := c.ReadMsgUDPAddrPort(buf, oob)
	if err != nil || flags&unix.MSG_TRUNC != 0 {
		t.Fatalf("%v: %v, flags %x", c.RemoteAddr(), err, flags)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	rest, segment := buf[:n], n
	for _, m := range messages {
		if m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO {
			segment = int(*(*int32)(unsafe.Pointer(&m.Data[0])))
		}
	}
	for segment > 0 && len(rest) > segment {
		list, rest = append(list, rest[:segment]), rest[segment:]
	}
	return append(list, rest)
}
