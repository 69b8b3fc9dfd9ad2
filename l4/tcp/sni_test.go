package tcp_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// A recorder is a backend that keeps what it is sent, and ends the TLS if it is.
type recorder struct {
	spec balance.BackendSpec
	up   *tcp.Upstream

	mu  sync.Mutex
	all []byte // of all connections
	n   int
}

type recording struct {
	net.Conn
	r *recorder
}

func (c recording) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.r.mu.Lock()
	c.r.all = append(c.r.all, b[:n]...)
	c.r.mu.Unlock()
	return n, err
}

func record(t *testing.T, name string) *recorder {
	r := &recorder{}
	r.spec = named(serve(t, func(c *net.TCPConn) {
		r.mu.Lock()
		r.n++
		r.mu.Unlock()
		e := tls.Server(recording{c, r}, &tls.Config{Certificates: []tls.Certificate{creds().pair}, NextProtos: []string{"h2", "http/1.1"}})
		if err := e.Handshake(); err != nil {
			io.Copy(io.Discard, recording{c, r})
			return
		}
		io.WriteString(e, name)
		e.Close()
	}), name)
	r.up = &tcp.Upstream{Pool: balance.New(balance.Spec{Name: name, Algorithm: "first", Backends: one(r.spec)}, nil)}
	return r
}

func (r *recorder) got() (all []byte, connections int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.all), r.n
}

// routes is a service that chooses between recorders by name.
func routes(t *testing.T, edit func(*tcp.Route, map[string]*tcp.Upstream)) (*proxy, map[string]*recorder) {
	all, ups := map[string]*recorder{}, map[string]*tcp.Upstream{}
	for _, name := range []string{"a", "b", "wild", "h2", "default", "nottls", "nohello"} {
		all[name] = record(t, name)
		ups[name] = all[name].up
	}
	p := start(t, nil, func(r *tcp.Route) {
		r.To, r.Spec.FirstBytes = nil, patience
		r.SNI = tcp.NewSNI([]tcp.SNIRule{
			{Name: "a.test", ALPN: []string{"h2"}, To: ups["h2"]},
			{Name: "a.test", To: ups["a"]},
			{Name: "*.a.test", To: ups["wild"]},
			{Name: "b.a.test", ALPN: []string{"h2"}, To: ups["b"]},
			{Name: "b.test", To: ups["b"]},
		})
		if edit != nil {
			edit(r, ups)
		}
	})
	return p, all
}

// ask returns which backend answers a client that asks for a name.
func ask(c net.Conn, name string, protocols ...string) (string, error) {
	e := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols})
	defer e.Close()
	b, err := io.ReadAll(e)
	return string(b), err
}

// O-20 and the rules: case, wildcards of one label, protocols, order, default.
func TestRouteByName(t *testing.T) {
	for _, withDefault := range []bool{false, true} {
		p, _ := routes(t, func(r *tcp.Route, up map[string]*tcp.Upstream) {
			if withDefault {
				r.SNI.Default = up["default"]
			}
		})
		for _, c := range []struct{ name, protocols, want string }{
			{"a.test", "", "a"},
			{"A.TeSt", "", "a"},
			{"a.test", "http/1.1", "a"},
			{"a.test", "http/1.1,h2", "h2"},
			{"x.a.test", "", "wild"},
			{"X.A.TEST", "h2", "wild"},
			{"b.a.test", "h2", "b"},
			{"b.a.test", "", "wild"},
			{"b.test", "", "b"},
			{"x.y.a.test", "", "default"},
			{"c.test", "", "default"},
			{"192.0.2.1", "", "default"}, // crypto/tls sends no name then
			{"", "", "default"},
		} {
			var protocols []string
			if c.protocols != "" {
				protocols = strings.Split(c.protocols, ",")
			}
			got, err := ask(p.dial(), c.name, protocols...)
			want := c.want
			if want == "default" && !withDefault {
				want = ""
			}
			if got != want || err != nil && want != "" {
				t.Errorf("%q %q: %q, %v, want %q", c.name, c.protocols, got, err, want)
			}
		}
	}
}

// hello returns the ClientHello crypto/tls sends, in its record.
func hello(t *testing.T, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	b.Close()
	return append(head, body...)
}

// records cuts a message into records of the given size.
func records(message []byte, size int) []byte {
	var b []byte
	for len(message) > 0 {
		n := min(size, len(message))
		b = append(b, 22, 3, 1, byte(n>>8), byte(n))
		b = append(b, message[:n]...)
		message = message[n:]
	}
	return b
}

// padded adds a padding extension (RFC 7685) so that the message has size bytes.
func padded(message []byte, size int) []byte {
	n := size - len(message) - 4
	m := append(bytes.Clone(message), 0, 21, byte(n>>8), byte(n))
	m = append(m, make([]byte, n)...)
	m[1], m[2], m[3] = byte((size-4)>>16), byte((size-4)>>8), byte(size-4)
	// The length of the extensions: behind version, random, session, suites, methods.
	at := 4 + 2 + 32
	at += 1 + int(m[at])
	at += 2 + int(m[at])<<8 + int(m[at+1])
	at += 1 + int(m[at])
	length := size - at - 2
	m[at], m[at+1] = byte(length>>8), byte(length)
	return m
}

// O-19 a to e: however a hello comes, it is routed, and goes on byte by byte.
func TestHelloInFragments(t *testing.T) {
	whole := hello(t, "a.test")
	message := whole[5:]
	for what, sent := range map[string][]byte{
		"as it is":           whole,
		"two records":        append(records(message[:40], 40), records(message[40:], 16384)...),
		"records of 1 byte":  records(message, 1),
		"of 5476 bytes":      records(padded(message, 5476), 16384),
		"of 15000 bytes":     records(padded(message, 15000), 16384),
		"of 60000 bytes":     records(padded(message, 60000), 16384),
		"with what follows":  append(bytes.Clone(whole), noise(3000)...),
		"with 100000 behind": append(bytes.Clone(whole), noise(100_000)...),
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			if piece == 1 && len(sent) > 4000 {
				continue
			}
			t.Run(what, func(t *testing.T) {
				p, all := routes(t, nil)
				c := p.dial()
				go io.Copy(io.Discard, c)
				for rest := sent; len(rest) > 0; {
					n := min(piece, len(rest))
					if piece == 7 {
						n = min(n+len(sent)/50, len(rest))
					}
					if _, err := c.Write(rest[:n]); err != nil {
						break // the backend's TLS has had enough of it
					}
					rest = rest[n:]
				}
				eventually(t, "the backend to have it", func() bool {
					b, _ := all["a"].got()
					n := min(len(b), len(sent))
					return n >= len(whole) && n >= min(len(sent), 2000) && sha256.Sum256(b[:n]) == sha256.Sum256(sent[:n])
				})
				c.Close()
			})
		}
	}
}

// O-19 f and g, O-21: what is wrong or late goes nowhere.
func TestHelloRefused(t *testing.T) {
	whole := hello(t, "a.test")
	huge := append([]byte{22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}, make([]byte, 100)...)
	for what, c := range map[string]struct {
		sent  []byte
		limit time.Duration
		want  l4.Outcome
		to    string
	}{
		"length of 16 MB":        {huge, patience, l4.BadTLSHello, ""},
		"half of it":             {whole[:100], 300 * time.Millisecond, l4.FirstBytesTimeout, ""},
		"one byte of it":         {whole[:1], 300 * time.Millisecond, l4.FirstBytesTimeout, ""},
		"another message":        {records([]byte{2, 0, 0, 1, 0}, 100), patience, l4.BadTLSHello, ""},
		"garbage in the message": {records(append([]byte{1, 0, 0, 200}, make([]byte, 200)...), 300), patience, l4.BadTLSHello, ""},
	} {
		t.Run(what, func(t *testing.T) {
			p, all := routes(t, func(r *tcp.Route, up map[string]*tcp.Upstream) {
				r.Spec.FirstBytes = c.limit
				r.SNI.Default, r.SNI.NotTLS, r.SNI.NoHello = up["default"], up["nottls"], up["nohello"]
			})
			client := p.dial()
			client.Write(c.sent)
			if b, err := io.ReadAll(client); len(b) > 0 || err != nil && !isReset(err) {
				t.Errorf("%q, %v", b, err)
			}
			if s := p.outcome(c.want); s.Pool != "" {
				t.Errorf("went to %s", s.Pool)
			}
			for name, r := range all {
				if _, n := r.got(); n > 0 {
					t.Errorf("%s was connected to", name)
				}
			}
		})
	}
}

// O-21: plain text and silence go where the configuration says, if it says so.
func TestNotTLSAndNoHello(t *testing.T) {
	for _, configured := range []bool{true, false} {
		p, all := routes(t, func(r *tcp.Route, up map[string]*tcp.Upstream) {
			r.Spec.FirstBytes = 300 * time.Millisecond
			r.SNI.Default = up["default"]
			if configured {
				r.SNI.NotTLS, r.SNI.NoHello = up["nottls"], up["nohello"]
			}
		})
		talks, silent := p.dial(), p.dial()
		talks.Write([]byte("EHLO x\r\n"))
		if configured {
			eventually(t, "the text to arrive", func() bool { b, _ := all["nottls"].got(); return string(b) == "EHLO x\r\n" })
			eventually(t, "the silent one to be connected", func() bool { _, n := all["nohello"].got(); return n == 1 })
			silent.Write([]byte("late"))
			eventually(t, "late words to arrive", func() bool { b, _ := all["nohello"].got(); return string(b) == "late" })
		} else {
			io.ReadAll(talks)
			io.ReadAll(silent)
		}
		talks.Close()
		silent.Close()
		outcomes := map[l4.Outcome]bool{}
		for _, s := range p.ended(2) {
			outcomes[s.Outcome] = true
		}
		if !configured && (!outcomes[l4.BadTLSHello] || !outcomes[l4.FirstBytesTimeout]) {
			t.Errorf("outcomes %v", outcomes)
		}
		if _, n := all["default"].got(); n > 0 {
			t.Error("the default was connected to")
		}
	}
}

// A client that ends in the middle of its hello.
func TestHelloCutShort(t *testing.T) {
	p, _ := routes(t, nil)
	c := p.dial()
	c.Write(hello(t, "a.test")[:50])
	c.CloseWrite()
	io.ReadAll(c)
	p.outcome(l4.BadTLSHello)
}
