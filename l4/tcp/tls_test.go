package tcp_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
)

// ending sets a service up that ends its clients' TLS.
func ending(t *testing.T, edit func(*cert.Spec)) func(*tcp.Route) {
	return func(r *tcp.Route) {
		r.Spec.FirstBytes, r.Spec.MaxHandshakes = patience, 100
		r.TLS = serverTLS(t, edit)
	}
}

func (p *proxy) service() *tcp.Service { return p.Services()[0] }

// shaking waits for n handshakes to be under way.
func (p *proxy) shaking(n int64) {
	p.t.Helper()
	eventually(p.t, "handshakes to be under way, or not", func() bool { return p.service().Stats.HandshakesActive.Load() == n })
}

// What was settled is in the session, and the counters know of resumption.
func TestTLSSession(t *testing.T) {
	p := start(t, one(echo(t)), ending(t, func(s *cert.Spec) { s.ALPN, s.ClientCA = []string{"x-test"}, "yes" }))
	config := clientConfig()
	config.ServerName, config.NextProtos = "www.a.test", []string{"x-test"}
	config.Certificates = []tls.Certificate{creds().pair}
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 2 {
		c := tls.Client(p.dial(), config)
		if err := ping(c); err != nil {
			t.Fatal(err)
		}
		if c.ConnectionState().DidResume != (i == 1) {
			t.Errorf("connection %d: resumed is %v", i, i == 0)
		}
		c.CloseWrite()
		io.ReadAll(c)
		c.Close()
		s := p.ended(i + 1)[i]
		if s.TLS == nil || s.TLS.Version != "TLSv1.3" || s.TLS.ServerName != "www.a.test" || s.TLS.ALPN != "x-test" || s.TLS.CommonName != "somebody" {
			t.Errorf("TLS %+v", s.TLS)
		}
		if s.Outcome != l4.OK || s.BytesIn != s.BytesOut || s.BytesIn == 0 {
			t.Errorf("%+v", s)
		}
	}
	st := &p.service().Stats
	if st.Handshakes.Load() != 2 || st.Resumed.Load() != 1 || st.HandshakesActive.Load() != 0 {
		t.Errorf("%d handshakes, %d resumed, %d under way", st.Handshakes.Load(), st.Resumed.Load(), st.HandshakesActive.Load())
	}
}

// Handshakes that fail are counted, told of, and leave nothing behind.
func TestHandshakeFails(t *testing.T) {
	garbage := func(b string) func(*net.TCPConn) error {
		return func(c *net.TCPConn) error {
			c.Write([]byte(b))
			_, err := io.ReadAll(c)
			return err
		}
	}
	with := func(edit func(*tls.Config)) func(*net.TCPConn) error {
		return func(c *net.TCPConn) error {
			config := clientConfig()
			edit(config)
			e := tls.Client(c, config)
			e.Write([]byte("x"))
			_, err := io.ReadAll(e)
			return err
		}
	}
	for what, c := range map[string]struct {
		spec  func(*cert.Spec)
		do    func(*net.TCPConn) error
		alert string // "" = anything
	}{
		"no common version": {
			func(s *cert.Spec) { s.MinVersion = tls.VersionTLS13 },
			with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "protocol version",
		},
		"no certificate": {
			func(s *cert.Spec) { s.ClientCA = "yes" },
			with(func(*tls.Config) {}), "certificate required",
		},
		"no certificate, TLS 1.2": {
			func(s *cert.Spec) { s.ClientCA = "yes" },
			with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "",
		},
		"no common protocol": {
			func(s *cert.Spec) { s.ALPN = []string{"x-test"} },
			with(func(c *tls.Config) { c.NextProtos = []string{"y-test"} }), "no application protocol",
		},
		"the client does not like ours": {nil, with(func(c *tls.Config) { c.ServerName = "nobody.test" }), ""},
		"plain HTTP":                    {nil, garbage("GET / HTTP/1.1\r\n\r\n"), ""},
		"a truncated record": {nil, func(c *net.TCPConn) error {
			c.Write(hello(t, "a.test")[:100])
			c.CloseWrite()
			_, err := io.ReadAll(c)
			return err
		}, ""},
		"a record too large": {nil, garbage("\x16\x03\x01\xff\xff" + strings.Repeat("x", 70_000)), ""},
		"a reset in the middle": {nil, func(c *net.TCPConn) error {
			c.Write(hello(t, "a.test"))
			io.ReadFull(c, make([]byte, 100))
			reset(c)
			return nil
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, one(serve(t, func(*net.TCPConn) { t.Error("a backend is connected to") })), ending(t, c.spec))
			err := c.do(p.dial())
			// An alert is lost when what the client has sent is reset behind it.
			if c.alert != "" && !isReset(err) && (err == nil || !strings.Contains(err.Error(), c.alert)) {
				t.Errorf("the client is told %v", err)
			}
			if s := p.outcome(l4.TLSFailed); s.Backend != "" || s.TLS != nil {
				t.Errorf("%+v", s)
			}
			p.shaking(0)
		})
	}
}

// A client that goes silent in the middle has its time; one that says nothing is
// not even a handshake.
func TestSilentHandshake(t *testing.T) {
	whole := hello(t, "a.test")
	for what, sent := range map[string][]byte{"nothing": nil, "half a hello": whole[:200], "no answer to ours": whole} {
		t.Run(what, func(t *testing.T) {
			p := start(t, one(echo(t)), ending(t, nil), func(r *tcp.Route) { r.Spec.FirstBytes = 400 * time.Millisecond })
			c := p.dial()
			c.Write(sent)
			io.Copy(io.Discard, c)
			p.outcome(l4.FirstBytesTimeout)
			p.shaking(0)
			if n := p.service().Stats.Handshakes.Load(); n != 0 {
				t.Errorf("%d handshakes have succeeded", n)
			}
		})
	}
}

// At the limit the oldest handshake makes room for the newest.
func TestMaxHandshakes(t *testing.T) {
	p := start(t, one(echo(t)), ending(t, nil), func(r *tcp.Route) { r.Spec.MaxHandshakes, r.Spec.FirstBytes = 2, time.Hour })
	whole := hello(t, "a.test")
	p.dial() // silent: no handshake
	var held []*net.TCPConn
	for i := range 6 {
		c := p.dial()
		c.Write(whole[:100])
		held = append(held, c)
		eventually(t, "the handshake to begin, or be refused", func() bool {
			return p.service().Stats.HandshakesActive.Load() == int64(min(i+1, 2)) && p.service().Stats.Outcomes[l4.RefusedLimit].Load() == uint64(max(i-1, 0))
		})
	}
	for _, s := range p.ended(4) {
		if s.Outcome != l4.RefusedLimit || s.By != l4.Proxy {
			t.Errorf("%+v", s)
		}
	}
	for _, c := range held {
		c.Close()
	}
	p.shaking(0)
	e := tls.Client(p.dial(), clientConfig())
	if err := ping(e); err != nil {
		t.Error(err)
	}
	p.shaking(0) // one that has succeeded is no longer under way
	p.Kill(l4.Killed)
}

// No close_notify is passed on as no close_notify, and to plain TCP as an end.
func TestTruncatedStream(t *testing.T) {
	for _, back := range []bool{false, true} {
		for _, truncated := range []bool{true, false} {
			got := make(chan bool, 1)
			m := mode{front: true, back: back}
			b := serve(t, func(c *net.TCPConn) {
				r := &lastRecord{Conn: c}
				var e net.Conn = c
				if back { // with TLS 1.2, where the kind of a record shows
					e = tls.Server(r, &tls.Config{Certificates: []tls.Certificate{creds().pair}, MaxVersion: tls.VersionTLS12})
				}
				if _, err := io.Copy(io.Discard, e); err != nil {
					t.Errorf("the backend's end: %v", err)
				}
				const alert = 21
				got <- r.kind() == alert
			})
			p := start(t, one(b), m.apply(t))
			c := m.client(t, p.dial()).(*tls.Conn)
			c.Write([]byte("hello"))
			if !truncated {
				c.CloseWrite()
			}
			raw(c).CloseWrite()
			if told := <-got; told != (back && !truncated) {
				t.Errorf("truncated %v, TLS to the backend %v: close_notify %v", truncated, back, told)
			}
			c.Close()
			p.outcome(l4.OK)
		}
	}
}

// lastRecord keeps what is read, to tell of what kind the last record was.
type lastRecord struct {
	net.Conn
	all []byte
}

func (c *lastRecord) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.all = append(c.all, b[:n]...)
	return n, err
}

func (c *lastRecord) kind() (kind byte) {
	for b := c.all; len(b) >= 5; b = b[min(5+int(b[3])<<8+int(b[4]), len(b)):] {
		kind = b[0]
	}
	return kind
}

// An end in the middle of a record is a reset.
func TestTruncatedRecord(t *testing.T) {
	m := mode{front: true}
	got := make(chan error, 1)
	p := m.through(t, func(e end) {
		_, err := io.Copy(io.Discard, e)
		got <- err
	})
	c := m.client(t, p.dial()).(*tls.Conn)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	raw(c).Write([]byte{23, 3, 3, 1, 0, 1, 2, 3})
	raw(c).CloseWrite()
	if err := <-got; !isReset(err) {
		t.Errorf("the backend saw %v", err)
	}
	p.outcome(l4.ClientReset)
}

// Nonsense after the handshake ends the connection with a reset for the backend.
func TestBrokenRecord(t *testing.T) {
	for what, sent := range map[string][]byte{
		"bad type":      {99, 3, 3, 0, 1, 0},
		"bad tag":       append([]byte{23, 3, 3, 0, 100}, make([]byte, 100)...),
		"too long":      {23, 3, 3, 0xff, 0xff},
		"another hello": hello(t, "a.test"),
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(what, func(t *testing.T) {
				m := mode{front: true, version: version}
				got := make(chan error, 1)
				p := m.through(t, func(e end) {
					io.ReadFull(e, make([]byte, 1))
					_, err := io.Copy(io.Discard, e)
					got <- err
				})
				c := m.client(t, p.dial()).(*tls.Conn)
				c.Write([]byte("x"))
				raw(c).Write(sent)
				if err := <-got; !isReset(err) {
					t.Errorf("the backend saw %v", err)
				}
				if _, err := io.Copy(io.Discard, c); err == nil {
					t.Error("the client saw an orderly end")
				}
				p.outcome(l4.ClientReset)
			})
		}
	}
}

// Many clients at once, each with an exchange: nobody waits for anybody.
func TestManyHandshakes(t *testing.T) {
	m := mode{front: true, back: true}
	p := m.through(t, func(e end) { io.Copy(e, e) })
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			raw, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Error(err)
				return
			}
			raw.SetDeadline(time.Now().Add(2 * patience))
			c := tls.Client(raw, clientConfig())
			defer c.Close()
			data, got := noise(20_000), make([]byte, 20_000)
			if _, err := c.Write(data); err != nil {
				t.Error(err)
				return
			}
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range p.ended(100) {
		if s.Outcome != l4.OK {
			t.Errorf("%v by %v: %d bytes in, %d out, TLS %v, %v to connect", s.Outcome, s.By, s.BytesIn, s.BytesOut, s.TLS, s.Connect)
		}
	}
}

// A client that reads little at a time makes progress, however long what the kernel
// holds for it lasts.
func TestSlowReaderMakesProgress(t *testing.T) {
	const size = 3 << 20
	for _, m := range []mode{{name: "plain"}, {name: "TLS", front: true}} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			p := m.through(t, func(e end) {
				e.Write(make([]byte, size))
				e.CloseWrite()
				io.Copy(io.Discard, e)
			}, func(r *tcp.Route) { r.Spec.HalfClose = 3 * time.Second })
			c := m.client(t, p.narrow())
			got, buf := 0, make([]byte, 4<<10)
			for begun := time.Now(); ; {
				n, err := c.Read(buf)
				got += n
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("after %d bytes: %v", got, err)
				}
				if time.Since(begun) < 8*time.Second {
					time.Sleep(20 * time.Millisecond)
				}
			}
			if got != size {
				t.Errorf("%d bytes", got)
			}
			c.Close()
			p.outcome(l4.OK)
		})
	}
}
