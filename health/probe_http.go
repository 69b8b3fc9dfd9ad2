package health

import (
	"bufio"
	"bytes"
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

// A probe must cost little whatever the backend sends: so much of an answer's
// header and of its body is read, and no more.
const (
	maxHTTPHeader = 64 << 10
	maxHTTPBody   = 64 << 10
)

// httpProber sends one HTTP/1.1 request on a connection of its own. Redirects are
// an answer like any other: following one would check another server.
//
// It does without http.Transport, whose goroutines outlive the probe by a moment
// and write to the standard logger when a server speaks first.
type httpProber struct {
	network, address string
	spec             HTTP
	want             statusRanges
}

func newHTTPProber(s Spec, network, address string) Prober {
	p := &httpProber{network: network, address: address, spec: s.HTTP, want: s.HTTP.ExpectStatus}
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
	conn, err := dial(ctx, p.network, p.address)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	resp, err := ask(conn, req)
	if err != nil {
		return asFailure(err)
	}
	err = p.judge(resp)
	answered(ctx)
	farewell(ctx, conn, resp.Body)
	return err
}

func (p *httpProber) request() (*http.Request, error) {
	target, err := url.ParseRequestURI(cmp.Or(p.spec.Path, "/"))
	if err != nil {
		return nil, err
	}
	target.Scheme, target.Host = "http", p.address
	if p.network == "unix" {
		target.Host = "localhost"
	}
	req, err := http.NewRequest(cmp.Or(p.spec.Method, http.MethodGet), target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Host = cmp.Or(p.spec.Host, req.Host)
	req.Header.Set("User-Agent", userAgent())
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
	expect := []byte(p.spec.ExpectBody)
	body := make([]byte, 0, 4<<10)
	for {
		n, err := resp.Body.Read(body[len(body):cap(body)])
		searched := max(len(body)-len(expect), 0)
		body = body[:len(body)+n]
		switch {
		case len(expect) > 0 && bytes.Contains(body[searched:], expect):
			return nil
		case err != nil && err != io.EOF:
			return answerFailure(err)
		case err == io.EOF || len(body) == maxHTTPBody:
			if len(expect) > 0 {
				return failf(L7RSP, "%q is not in the body's %d bytes", expect, len(body))
			}
			return nil
		case len(body) == cap(body):
			body = append(make([]byte, 0, min(4*cap(body), maxHTTPBody)), body...)
		}
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
