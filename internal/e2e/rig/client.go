package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// A Client is one connection to backends that tell their names, through the balancer.
type Client struct {
	net.Conn
	Reader *bufio.Reader
}

// Dial connects a client for the length of the test, at most.
func Dial(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := TryDial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TryDial is Dial that may fail; the caller must close the client.
func TryDial(addr string) (*Client, error) {
	conn, err := net.DialTimeout("tcp", addr, Patience)
	if err != nil {
		return nil, err
	}
	return &Client{conn, bufio.NewReader(conn)}, nil
}

// Ask sends a line and returns the name of the backend that answered it.
func (c *Client) Ask() (string, error) {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	name, err := c.Reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	if line, err := c.Reader.ReadString('\n'); err != nil || line != "hello\n" {
		return "", fmt.Errorf("the echo was %q, %w", line, err)
	}
	return strings.TrimSuffix(name, "\n"), nil
}

// MustAsk is Ask that may not fail.
func (c *Client) MustAsk(t testing.TB) string {
	t.Helper()
	name, err := c.Ask()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Ask makes one short connection and returns who answered.
func Ask(addr string) (string, error) {
	c, err := TryDial(addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Ask()
}

// AskTimes makes n connections, one after the other, and returns who answered.
func AskTimes(listen string, n int) (served map[string]int, failed int) {
	served = map[string]int{}
	for range n {
		name, err := Ask(listen)
		if err != nil {
			failed++
			continue
		}
		served[name]++
	}
	return served, failed
}

// Addr returns an address of loopback that is reserved for the test:
// nothing listens there, and no client is given its port.
func Addr(t testing.TB) string {
	t.Helper()
	return reserve(t, "127.0.0.1:0").String()
}

// EveryIPv4 is Addr with a port that is reserved at every IPv4 address, for what listens
// at all of them: other tests have ports at other addresses of loopback.
func EveryIPv4(t testing.TB) string {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), reserve(t, "0.0.0.0:0").Port()).String()
}

func reserve(t testing.TB, addr string) netip.AddrPort {
	t.Helper()
	r, err := loadgen.Reserve(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return netip.MustParseAddrPort(r.Addr().String())
}

// Connect dials a bare connection for the length of the test, at most.
func Connect(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * Patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// NewClient is a client on a connection that has begun.
func NewClient(c net.Conn) *Client { return &Client{c, bufio.NewReader(c)} }

// EveryAddr reserves a port of every address: listen there, and connect to one.
func EveryAddr(t testing.TB) (listen, connectTo string) {
	t.Helper()
	r, err := loadgen.Reserve("[::]:0")
	if err != nil {
		Unavailable(t, "needs IPv6: "+err.Error())
	}
	t.Cleanup(r.Close)
	listen = fmt.Sprintf(":%d", r.Addr().Port())
	return listen, "127.0.0.1" + listen
}

// ConnectFrom is Connect from an address of this host.
func ConnectFrom(t testing.TB, source, addr string) *net.TCPConn {
	t.Helper()
	c, err := TryFrom(t, source, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TryFrom is ConnectFrom that may fail: the connection may be reset before connect returns.
func TryFrom(t testing.TB, source, addr string) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{Timeout: Patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(2 * Patience))
}

// Say sends pieces with pauses in between, ends the direction, and returns what comes
// back.
func Say(t testing.TB, c *net.TCPConn, pause time.Duration, pieces ...string) Reading {
	t.Helper()
	defer c.Close()
	for i, p := range pieces {
		if i > 0 && pause > 0 {
			time.Sleep(pause)
		}
		if _, err := io.WriteString(c, p); err != nil {
			return Reading{Err: err}
		}
	}
	if err := c.CloseWrite(); err != nil {
		return Reading{Err: err}
	}
	return ReadToEnd(c)
}

// SayFrom connects from an address of loopback, sends and returns what comes back.
func SayFrom(t *testing.T, from, to, what string, most int) []byte {
	t.Helper()
	d := net.Dialer{Timeout: Patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(Patience))
	if _, err := io.WriteString(c, what); err != nil {
		return nil
	}
	got, _ := io.ReadAll(io.LimitReader(c, int64(most)))
	return got
}
