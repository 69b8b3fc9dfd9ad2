package health

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
)

// HTTP is the question an http check asks and the answer it expects.
type HTTP struct {
	Path    string   // starts with "/", may have a query; "" = "/"
	Method  string   // "" = GET
	Host    string   // Host header; "" = the address that is probed
	Headers []Header // further ones; none of those that HTTP itself needs

	TLS     bool // HTTPS, as Spec.TLS says
	Version int  // 2 = HTTP/2, without TLS by prior knowledge; else HTTP/1.1

	ExpectStatus []StatusRange // nil = 200-399

	// One of them at most, to be found within the body's first 64 KiB.
	ExpectBody      string
	ExpectBodyRegex string // see Pattern
}

// Header is one header field.
type Header struct{ Name, Value string }

// A probe must cost little whatever the backend sends: so much of an answer's
// header and of its body is read, and no more.
const (
	maxHTTPHeader = 64 << 10
	maxHTTPBody   = 64 << 10
)

// httpProber sends one HTTP request on a connection of its own. Redirects are an
// answer like any other: following one would check another server.
//
// It does without http.Transport where it can, whose goroutines outlive the probe
// by a moment and, with HTTP/1.1, write to the standard logger when a server
// speaks first.
type httpProber struct {
	dialer
	spec HTTP
	tls  *shaker // nil = no TLS
	want statusRanges
}

var httpCheck = Check{Word: "http", New: newHTTPProber, Fails: asking, TLS: func(s Spec) bool { return s.HTTP.TLS }}

func newHTTPProber(s Spec, network, address string) Prober {
	d := s.dialer(network, address)
	p := &httpProber{dialer: d, spec: s.HTTP, want: s.HTTP.ExpectStatus}
	if s.HTTP.TLS {
		p.tls = s.shaker(d)
	}
	if len(p.want) == 0 {
		p.want = statusRanges{{200, 399}}
	}
	return p
}

// Probe connects, asks, and judges the status and the body.
func (p *httpProber) Probe(ctx context.Context) error {
	req, err := p.request()
	if err != nil {
		return &Failure{L7RSP, err}
	}
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	if p.spec.Version == 2 {
		return p.probe2(ctx, conn, req)
	}
	stream := conn
	if p.tls != nil {
		secure, err := p.tls.shake(ctx, conn, nil)
		if err != nil {
			return err
		}
		defer secure.CloseWrite() // close_notify (RFC 8446, section 6.1)
		stream = secure
	}
	resp, err := ask(stream, req)
	if err != nil {
		return asFailure(err)
	}
	err = p.judge(resp)
	answered(ctx)
	farewell(ctx, conn, resp.Body)
	if err != nil {
		return asFailure(err)
	}
	return nil
}

// probe2 is what HTTP/2 does otherwise.
func (p *httpProber) probe2(ctx context.Context, conn net.Conn, req *http.Request) error {
	l := lend(conn)
	req.Close = false // HTTP/2 has no such header; the connection is closed anyway
	resp, bye, err := askHTTP2(ctx, l, p.tls, req)
	if err != nil {
		return err
	}
	err = p.judge(resp)
	answered(ctx)
	bye()
	if err != nil {
		return http2Failure(l, err)
	}
	return nil
}

func (p *httpProber) request() (*http.Request, error) {
	target, err := url.ParseRequestURI(cmp.Or(p.spec.Path, "/"))
	if err != nil {
		return nil, err
	}
	target.Scheme, target.Host = "http", p.address
	if p.tls != nil {
		target.Scheme = "https"
	}
	if p.network == "unix" {
		target.Host = "localhost"
	}
	req, err := http.NewRequest(cmp.Or(p.spec.Method, http.MethodGet), target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Host = cmp.Or(p.spec.Host, req.Host)
	req.Header.Set("User-Agent", userAgent())
	for _, h := range p.spec.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	req.Close = true // "Connection: close"
	return req, nil
}

// ask sends the request and reads the header of the answer, and any interim ones
// (RFC 9110, section 15.2) before it.
func ask(conn net.Conn, req *http.Request) (*http.Response, error) {
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxHTTPHeader}
	r := bufio.NewReader(limited)
	for {
		resp, err := http.ReadResponse(r, req)
		switch {
		case err != nil && limited.N <= 0:
			return nil, failf(L7RSP, "header of more than %d bytes", maxHTTPHeader)
		case err != nil:
			return nil, err
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			limited.N = math.MaxInt64 // judge has a limit of its own
			return resp, nil
		}
	}
}

// judge reads no more of the body than it takes to know. Without an expected body
// that is all of it: a backend that cannot finish an answer is not healthy.
func (p *httpProber) judge(resp *http.Response) error {
	if !p.want.contain(resp.StatusCode) {
		return failf(L7STS, "status %d, want %s", resp.StatusCode, p.want)
	}
	expect := Pattern{Text: p.spec.ExpectBody, Regex: p.spec.ExpectBodyRegex}
	var m matcher
	if expect != (Pattern{}) {
		m = expect.matcher()
	}
	f, size := open, 0
	buf := make([]byte, 4<<10)
	for {
		n, err := resp.Body.Read(buf[:min(len(buf), maxHTTPBody-size)])
		size += n
		if m != nil && f == open {
			_, f = m.feed(buf[:n])
		}
		switch {
		case f == found:
			return nil
		case err != nil && err != io.EOF:
			return err
		case err == nil && size < maxHTTPBody:
			continue
		case m == nil || err == io.EOF && f == open && m.end() == found:
			return nil
		}
		return failf(L7RSP, "%s is not in the body's %d bytes", expect, size)
	}
}

// userAgent is "poise/" and the version of the binary.
var userAgent = sync.OnceValue(func() string {
	version := "dev"
	if info, ok := debug.ReadBuildInfo(); ok {
		if v, ok := strings.CutPrefix(info.Main.Version, "v"); ok {
			version = v
		}
	}
	return "poise/" + version
})
