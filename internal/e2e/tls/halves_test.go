package tls

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// A route of the half-close table: what the two connections of it are.
type halvesRoute struct {
	front, back string // plain, tls, or sni for both: TLS from end to end
	in, out     bool   // a PROXY header of the client, and one to the backend
	service     string
	listen      string
	backend     *halvesBackend
}

func (r halvesRoute) String() string {
	s := r.front + " to " + r.back
	if r.in {
		s += ", proxy in"
	}
	if r.out {
		s += ", proxy out"
	}
	return s
}

// halvesRoutes is every combination.
func halvesRoutes() (list []halvesRoute) {
	for _, ends := range [][2]string{{"plain", "plain"}, {"tls", "plain"}, {"plain", "tls"}, {"tls", "tls"}, {"sni", "sni"}} {
		for _, in := range []bool{false, true} {
			for _, out := range []bool{false, true} {
				list = append(list, halvesRoute{front: ends[0], back: ends[1], in: in, out: out, service: fmt.Sprintf("s%d", len(list))})
			}
		}
	}
	return list
}

// halvesBackend does as the first word of a client says.
type halvesBackend struct {
	route *halvesRoute
	tls   *tls.Config
	ends  map[string]chan rig.Reading // of what the client sent after the word
}

const (
	halvesPause  = 300 * time.Millisecond
	halvesText   = "12345"
	halvesUpload = 1 << 20
)

var halvesAnswer = bytes.Repeat([]byte("R"), 204_800)

// halvesWords are what can happen.
var halvesWords = []string{"answer", "upload", "both", "creset", "breset", "ccut", "bcut"}

func (b *halvesBackend) serve(tcp *net.TCPConn, _ <-chan struct{}) {
	conn := net.Conn(tcp)
	if b.route.back != "plain" {
		conn = rig.StrictConn{TCPConn: tcp}
	}
	if b.route.out {
		var err error
		if _, conn, err = rig.ReadHeader(conn); err != nil {
			return
		}
	}
	if b.route.back != "plain" {
		conn = tls.Server(conn, b.tls)
	}
	s := rig.Stream{Conn: conn, TCP: tcp}
	word := make([]byte, 6)
	if _, err := io.ReadFull(s, word); err != nil {
		return
	}
	name := strings.TrimSpace(string(word))
	switch name {
	case "answer": // O-01: late, after the client's end
		r := rig.ReadToEnd(s)
		time.Sleep(halvesPause)
		_, _ = s.Write(halvesAnswer)
		b.ends[name] <- r
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp) // what TLS may still have to say
	case "upload": // O-01 (b): the backend ends first
		_, _ = io.WriteString(s, halvesText)
		_ = s.CloseWrite()
		b.ends[name] <- rig.ReadToEnd(s)
	case "both":
		_, _ = io.WriteString(s, halvesText)
		b.ends[name] <- rig.ReadToEnd(s)
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp)
	case "creset", "ccut": // O-03
		_, _ = io.WriteString(s, "!")
		b.ends[name] <- rig.ReadToEnd(s)
	case "breset", "bcut":
		_, _ = io.WriteString(s, halvesText)
		if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
			return
		}
		if name == "breset" {
			rig.Reset(tcp)
			return
		}
		_ = tcp.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp)
	}
}

// halvesClient connects a client of the route.
func halvesClient(t *testing.T, r halvesRoute, ca *rig.Authority, word string) rig.Stream {
	t.Helper()
	tcp := rig.Connect(t, r.listen)
	if r.in {
		if _, err := io.WriteString(tcp, rig.ProxyV2); err != nil {
			t.Fatal(err)
		}
	}
	s := rig.Stream{Conn: tcp, TCP: tcp}
	if r.front != "plain" {
		s.Conn = tls.Client(rig.StrictConn{TCPConn: tcp}, ca.ClientConfig("db.test"))
	}
	if _, err := io.WriteString(s, word+strings.Repeat(" ", 6-len(word))); err != nil {
		t.Fatal(err)
	}
	return s
}

// halvesConfig is one service and pool for each route.
func halvesConfig(routes []halvesRoute, ca *rig.Authority, own rig.Leaf, addresses []string) string {
	var services, pools strings.Builder
	for i, r := range routes {
		fmt.Fprintf(&services, "  %s: {listen: [%q]", r.service, r.listen)
		if r.in {
			services.WriteString(", proxy_protocol: {accept: v2, trusted: [127.0.0.1]}")
		}
		switch r.front {
		case "sni":
			fmt.Fprintf(&services, ", sni: {db.test: %s}}\n", r.service)
		case "tls":
			fmt.Fprintf(&services, ", pool: %s, %s}\n", r.service, own.ServiceTLS())
		default:
			fmt.Fprintf(&services, ", pool: %s}\n", r.service)
		}
		fmt.Fprintf(&pools, "  %s: {backends: [%s]", r.service, rig.Member("db1", addresses[i]))
		if r.out {
			pools.WriteString(", send_proxy: v2")
		}
		if r.back == "tls" {
			fmt.Fprintf(&pools, ", tls: {server_name: db.test, ca: %s}", ca.File)
		}
		pools.WriteString("}\n")
	}
	return "log: {access_format: json}\ndefaults: {pools: {check: {type: none}, passive: {failures: 0}}}\nservices:\n" + services.String() + "pools:\n" + pools.String()
}

// Cases O-01 (with c, d and f) and O-03, over every kind of connection there is: an
// end is passed on as what it was, and only in its own direction.
func TestHalves(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	own := ca.Issue(t, "db.test")
	routes := halvesRoutes()
	addresses := make([]string, len(routes))
	for i := range routes {
		r := &routes[i]
		r.listen = rig.Addr(t)
		r.backend = &halvesBackend{route: r, tls: rig.ServerConfig(own), ends: map[string]chan rig.Reading{}}
		for _, w := range halvesWords {
			r.backend.ends[w] = make(chan rig.Reading, 1)
		}
		addresses[i] = rig.Serve(t, r.backend.serve)
	}
	p := rig.Start(t, halvesConfig(routes, ca, own, addresses))
	for i, r := range routes {
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			for _, word := range halvesWords {
				t.Run(word, func(t *testing.T) { halvesCell(t, p, r, ca, word) })
			}
			var left []string
			defer func() {
				if len(left) > 0 {
					t.Log(left)
				}
			}()
			rig.Eventually(t, "the sockets to be gone", func() bool {
				left = rig.Sockets(t, r.listen, addresses[i])
				return len(left) == 0
			})
		})
	}
}

// halvesCell is one cell of the table.
func halvesCell(t *testing.T, p *rig.Proc, r halvesRoute, ca *rig.Authority, word string) {
	end := r.backend.ends[word]
	expect := func(who string, got rig.Reading, text string, clean bool) {
		t.Helper()
		if got.Got != text {
			t.Errorf("%s got %d bytes, want %d", who, len(got.Got), len(text))
		}
		if clean != (got.Err == nil) || rig.IsTimeout(got.Err) {
			t.Errorf("%s: the end was %v", who, got.Err)
		}
	}
	outcome := "ok"
	c := halvesClient(t, r, ca, word)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	awaits := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("the client got %q, %v", got, err)
		}
	}
	switch word {
	case "answer":
		_, err := io.WriteString(c, "PING\n")
		must(err)
		must(c.CloseWrite())
		expect("the client", rig.ReadToEnd(c), string(halvesAnswer), true)
		expect("the backend", <-end, "PING\n", true)
	case "upload":
		expect("the client", rig.ReadToEnd(c), halvesText, true)
		_, err := c.Write(make([]byte, halvesUpload))
		must(err)
		must(c.CloseWrite())
		expect("the backend", <-end, strings.Repeat("\x00", halvesUpload), true)
	case "both":
		awaits(halvesText)
		must(c.CloseWrite())
		expect("the client", rig.ReadToEnd(c), "", true)
		expect("the backend", <-end, "", true)
	case "creset":
		awaits("!")
		_, err := io.WriteString(c, halvesText)
		must(err)
		rig.Reset(c.TCP)
		outcome = "client_reset"
		expect("the backend", <-end, halvesText, false)
	case "breset":
		awaits(halvesText)
		_, err := io.WriteString(c, "?")
		must(err)
		outcome = "backend_reset"
		expect("the client", rig.ReadToEnd(c), "", false)
	case "ccut": // plain TCP has no word for it
		awaits("!")
		_, err := io.WriteString(c, halvesText)
		must(err)
		must(c.TCP.CloseWrite())
		expect("the backend", <-end, halvesText, r.front == "plain" || r.back == "plain")
	case "bcut":
		awaits(halvesText)
		_, err := io.WriteString(c, "?")
		must(err)
		expect("the client", rig.ReadToEnd(c), "", r.front == "plain" || r.back == "plain")
	}
	c.TCP.Close()
	before := 0
	if outcome == "ok" {
		for _, w := range halvesWords[:slices.Index(halvesWords, word)] { // those that have ended so before
			if w != "creset" && w != "breset" {
				before++
			}
		}
	}
	rig.Eventually(t, outcome, func() bool {
		n := 0
		for line := range strings.Lines(p.Stdout()) {
			if strings.Contains(line, fmt.Sprintf(`"service":%q`, r.service)) && strings.Contains(line, fmt.Sprintf(`"outcome":%q`, outcome)) {
				n++
			}
		}
		return n == before+1
	})
}
