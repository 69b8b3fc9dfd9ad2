package tls

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Handshakes that are begun and not ended are bounded, in number and in time.
func TestTLSHalfOpen(t *testing.T) {
	t.Parallel()
	const most, clients = 10, 40
	ca := rig.NewAuthority(t)
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := func(limit time.Duration) string {
		// One loop: each has its own oldest.
		return "runtime: {workers: 1}\n" + rig.WebConfig(listen, ca.Issue(t, "db.test").ServiceTLS(fmt.Sprintf("max_handshakes: %d", most))+fmt.Sprintf(", timeouts: {first_bytes: %s}", limit),
			"check: {type: none}", rig.Member("db1", db.Addr()))
	}
	p := rig.Start(t, yaml(time.Hour))
	good := func() error {
		c, err := rig.DialTLS(t, listen, ca.ClientConfig("db.test"))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = rig.NewClient(c).Ask()
		return err
	}
	if err := good(); err != nil {
		t.Fatal(err)
	}
	hello := rig.ClientHello(t, ca.ClientConfig("db.test"))
	active := func() float64 { return p.Metrics(t)[`poise_tls_handshakes_active{service="web"}`] }

	// A client that has sent nothing is not in a handshake, and takes no place.
	for range clients {
		rig.Connect(t, listen)
	}
	rig.Eventually(t, "the silent ones to be there", func() bool { return p.Status(t).Connections == clients })
	if n := active(); n != 0 {
		t.Errorf("%v handshakes under way", n)
	}
	var held []net.Conn
	begin := func(n int) {
		t.Helper()
		c := rig.Connect(t, listen)
		if _, err := c.Write(hello[:n]); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	for i := range most { // of every other one the server's turn is over as well
		begin(len(hello) / (1 + i%2))
	}
	rig.Eventually(t, "all handshakes to be under way", func() bool { return active() == most })
	for range clients {
		begin(len(hello) / 2)
		if n := active(); n > most+1 { // the newest is counted before the oldest goes
			t.Errorf("%v handshakes under way", n)
		}
	}
	// The oldest have given way, and a client that completes its handshake is served.
	p.WantOutcomes(t, "refused_limit", clients)
	if n := active(); n != most {
		t.Errorf("%v handshakes under way", n)
	}
	if err := good(); err != nil {
		t.Error(err)
	}
	p.WantOutcomes(t, "refused_limit", clients+1)
	for _, c := range held[:clients+1] {
		if r := rig.ReadToEnd(c); rig.IsTimeout(r.Err) {
			t.Error(r.Err)
		}
	}
	rig.Eventually(t, "the last to be under way", func() bool { return active() == most-1 })
	for _, c := range held {
		c.Close()
	}
	rig.Eventually(t, "all to have gone", func() bool { return active() == 0 && p.Status(t).Connections == clients })

	// Those that only wait are ended by time.
	p.MustReload(t, yaml(time.Second))
	began := time.Now()
	held = nil
	for i := range most {
		begin(len(hello) - i)
	}
	for _, c := range held {
		if r := rig.ReadToEnd(c); rig.IsTimeout(r.Err) {
			t.Error(r.Err)
		}
	}
	if took := time.Since(began); took < 800*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	p.WantOutcomes(t, "first_bytes_timeout", most)
	rig.Eventually(t, "room for another one", func() bool { return good() == nil })
	if n := active(); n != 0 {
		t.Errorf("%v handshakes under way", n)
	}
}

// A client that sends the end together with all it has to say, and one that resets
// while its TLS begins: what came is carried, and nothing is left.
func TestTLSAbruptClients(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	address, visits := rig.Visitors(t, false)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, ca.Issue(t, "db.test").ServiceTLS(), "check: {type: none}", rig.Member("db1", address)))
	const rounds = 50
	hello := rig.ClientHello(t, ca.ClientConfig("db.test"))
	for range rounds {
		c := rig.Connect(t, listen)
		s := tls.Client(c, ca.ClientConfig("db.test"))
		if _, err := io.WriteString(s, "text"); err != nil {
			t.Fatal(err)
		}
		_ = s.CloseWrite()
		_ = c.CloseWrite()
		if v := rig.NextVisit(t, visits); v.Data != "text" || v.Err != nil {
			t.Errorf("%q, %v", v.Data, v.Err)
		}
		if r := rig.ReadToEnd(s); r.Got != "ok" || r.Err != nil {
			t.Errorf("%q, %v", r.Got, r.Err)
		}
		c.Close()

		for _, b := range [][]byte{nil, hello[:1], hello[:len(hello)/2], hello} {
			c := rig.Connect(t, listen)
			_, _ = c.Write(b)
			rig.Reset(c)
		}
	}
	rig.Eventually(t, "all to have ended", func() bool { return p.Metrics(t).Sum("poise_sessions_total") == 5*rounds })
	m := p.Metrics(t)
	if n := m[`poise_tls_handshakes_active{service="web"}`]; n != 0 {
		t.Errorf("%v handshakes under way", n)
	}
	if n := m[`poise_sessions_total{outcome="ok",service="web"}`]; n != rounds {
		t.Errorf("%v have ended in order", n)
	}
	rig.Eventually(t, "the sockets to be gone", func() bool { return len(rig.Sockets(t, listen, address)) == 0 })
	// A goroutine a handshake, and none is left.
	rig.Eventually(t, "goroutines to be few", func() bool { return p.Metrics(t)["go_goroutines"] < 60 })
}
