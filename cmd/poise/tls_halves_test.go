package main

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
	ends  map[string]chan reading // of what the client sent after the word
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
		conn = strictConn{tcp}
	}
	if b.route.out {
		var err error
		if _, conn, err = readHeader(conn); err != nil {
			return
		}
	}
	if b.route.back != "plain" {
		conn = tls.Server(conn, b.tls)
	}
	s := stream{conn, tcp}
	word := make([]byte, 6)
	if _, err := io.ReadFull(s, word); err != nil {
		return
	}
	name := strings.TrimSpace(string(word))
	switch name {
	case "answer": // O-01: late, after the client's end
		r := readToEnd(s)
		time.Sleep(halvesPause)
		_, _ = s.Write(halvesAnswer)
		b.ends[name] <- r
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp) // what TLS may still have to say
	case "upload": // O-01 (b): the backend ends first
		_, _ = io.WriteString(s, halvesText)
		_ = s.CloseWrite()
		b.ends[name] <- readToEnd(s)
	case "both":
		_, _ = io.WriteString(s, halvesText)
		b.ends[name] <- readToEnd(s)
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp)
	case "creset", "ccut": // O-03
		_, _ = io.WriteString(s, "!")
		b.ends[name] <- readToEnd(s)
	case "breset", "bcut":
		_, _ = io.WriteString(s, halvesText)
		if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
			return
		}
		if name == "breset" {
			reset(tcp)
			return
		}
		_ = tcp.CloseWrite()
		_, _ = io.Copy(io.Discard, tcp)
	}
}

// halvesClient connects a client of the route.
func halvesClient(t *testing.T, r halvesRoute, ca *authority, word string) stream {
	t.Helper()
	tcp := connect(t, r.listen)
	if r.in {
		if _, err := io.WriteString(tcp, proxyV2); err != nil {
			t.Fatal(err)
		}
	}
	s := stream{tcp, tcp}
	if r.front != "plain" {
		s.Conn = tls.Client(strictConn{tcp}, ca.asks("db.test"))
	}
	if _, err := io.WriteString(s, word+strings.Repeat(" ", 6-len(word))); err != nil {
		t.Fatal(err)
	}
	return s
}

// halvesConfig is one service and pool for each route.
func halvesConfig(routes []halvesRoute, ca *authority, own leaf, addresses []string) string {
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
			fmt.Fprintf(&services, ", pool: %s, %s}\n", r.service, own.ends())
		default:
			fmt.Fprintf(&services, ", pool: %s}\n", r.service)
		}
		fmt.Fprintf(&pools, "  %s: {backends: [%s]", r.service, member("db1", addresses[i]))
		if r.out {
			pools.WriteString(", send_proxy: v2")
		}
		if r.back == "tls" {
			fmt.Fprintf(&pools, ", tls: {server_name: db.test, ca: %s}", ca.file)
		}
		pools.WriteString("}\n")
	}
	return "log: {access_format: json}\ndefaults: {pools: {check: {type: none}, passive: {failures: 0}}}\nservices:\n" + services.String() + "pools:\n" + pools.String()
}

// Cases O-01 (with c, d and f) and O-03, over every kind of connection there is: an
// end is passed on as what it was, and only in its own direction.
func TestHalves(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	own := ca.issue(t, "db.test")
	routes := halvesRoutes()
	addresses := make([]string, len(routes))
	for i := range routes {
		r := &routes[i]
		r.listen = addr(t)
		r.backend = &halvesBackend{route: r, tls: shows(own), ends: map[string]chan reading{}}
		for _, w := range halvesWords {
			r.backend.ends[w] = make(chan reading, 1)
		}
		addresses[i] = serve(t, r.backend.serve)
	}
	p := start(t, halvesConfig(routes, ca, own, addresses))
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
			eventually(t, "the sockets to be gone", func() bool {
				left = sockets(t, r.listen, addresses[i])
				return len(left) == 0
			})
		})
	}
}

// halvesCell is one cell of the table.
func halvesCell(t *testing.T, p *proc, r halvesRoute, ca *authority, word string) {
	end := r.backend.ends[word]
	expect := func(who string, got reading, text string, clean bool) {
		t.Helper()
		if got.got != text {
			t.Errorf("%s got %d bytes, want %d", who, len(got.got), len(text))
		}
		if clean != (got.err == nil) || isTimeout(got.err) {
			t.Errorf("%s: the end was %v", who, got.err)
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
		expect("the client", readToEnd(c), string(halvesAnswer), true)
		expect("the backend", <-end, "PING\n", true)
	case "upload":
		expect("the client", readToEnd(c), halvesText, true)
		_, err := c.Write(make([]byte, halvesUpload))
		must(err)
		must(c.CloseWrite())
		expect("the backend", <-end, strings.Repeat("\x00", halvesUpload), true)
	case "both":
		awaits(halvesText)
		must(c.CloseWrite())
		expect("the client", readToEnd(c), "", true)
		expect("the backend", <-end, "", true)
	case "creset":
		awaits("!")
		_, err := io.WriteString(c, halvesText)
		must(err)
		reset(c.tcp)
		outcome = "client_reset"
		expect("the backend", <-end, halvesText, false)
	case "breset":
		awaits(halvesText)
		_, err := io.WriteString(c, "?")
		must(err)
		outcome = "backend_reset"
		expect("the client", readToEnd(c), "", false)
	case "ccut": // plain TCP has no word for it
		awaits("!")
		_, err := io.WriteString(c, halvesText)
		must(err)
		must(c.tcp.CloseWrite())
		expect("the backend", <-end, halvesText, r.front == "plain" || r.back == "plain")
	case "bcut":
		awaits(halvesText)
		_, err := io.WriteString(c, "?")
		must(err)
		expect("the client", readToEnd(c), "", r.front == "plain" || r.back == "plain")
	}
	c.tcp.Close()
	before := 0
	if outcome == "ok" {
		for _, w := range halvesWords[:slices.Index(halvesWords, word)] { // those that have ended so before
			if w != "creset" && w != "breset" {
				before++
			}
		}
	}
	eventually(t, outcome, func() bool {
		n := 0
		for line := range strings.Lines(p.Stdout()) {
			if strings.Contains(line, fmt.Sprintf(`"service":%q`, r.service)) && strings.Contains(line, fmt.Sprintf(`"outcome":%q`, outcome)) {
				n++
			}
		}
		return n == before+1
	})
}
