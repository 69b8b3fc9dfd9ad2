package tcp_test

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tcp"
)

// A backend sees the client's address. Any other than the loopback's would take rules
// to find its way back.
func TestTransparentSource(t *testing.T) {
	if errno := sock.MayBeTransparent(); errno != 0 {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(errno)
		}
		t.Skip("needs CAP_NET_ADMIN: ", errno)
	}
	b := serve(t, func(c *net.TCPConn) { io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String()) })
	p := start(t, one(b), func(r *tcp.Route) { r.To.Transparent = true })
	for _, source := range []string{"127.0.0.5", "127.1.2.3"} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		c, err := d.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := io.ReadAll(c); string(seen) != source {
			t.Errorf("the backend sees %q, %v, and not %s", seen, err, source)
		}
		c.Close()
	}
}
