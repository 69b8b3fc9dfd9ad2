package health

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// webServer is a real HTTP server; cfg nil is without TLS.
type webServer struct {
	network, address string
	open             atomic.Int64
}

func newWebServer(t *testing.T, network string, cfg *tls.Config, h http.Handler) *webServer {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "web.sock")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s := &webServer{network: network, address: ln.Addr().String()}
	server := httptest.NewUnstartedServer(h)
	server.Listener.Close()
	server.Listener = ln
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetHTTP2(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
		}
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if cfg == nil {
		server.Start()
	} else {
		server.TLS = cfg
		server.EnableHTTP2 = true
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	return s
}

func (s *webServer) probe(spec Spec) error {
	return probeOnce(spec.Prober(s.network, s.address), longTimeout)
}

// Every way to ask, at a real server.
func TestHTTPProbeVersions(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, expires, "127.0.0.1", "localhost", "app.example.org")}}
	seen := make(chan *http.Request, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "all is ready")
	})
	for _, network := range []string{"tcp", "unix"} {
		for _, secure := range []bool{false, true} {
			for _, version := range []int{1, 2} {
				var with *tls.Config
				if secure {
					with = cfg.Clone()
				}
				s := newWebServer(t, network, with, handler)
				spec := Spec{Type: "http", TLS: TLS{CA: ca.file}, HTTP: HTTP{
					Path: "/up?deep=1", Host: "app.example.org", TLS: secure, Version: version,
					Headers:    []Header{{"X-Probe", "yes"}, {"User-Agent", "custom"}},
					ExpectBody: "ready", ExpectStatus: []StatusRange{{202, 202}},
				}}
				ctx, cancel := contextOf(longTimeout)
				res := timed(ctx, spec.Prober(s.network, s.address), true)
				cancel()
				if res.err != nil {
					t.Errorf("%s, TLS %v, HTTP/%d: %v", network, secure, version, res.err)
					continue
				}
				r := <-seen
				if r.ProtoMajor != version || r.RequestURI != "/up?deep=1" || r.Host != "app.example.org" ||
					r.Header.Get("X-Probe") != "yes" || r.UserAgent() != "custom" || (r.TLS != nil) != secure {
					t.Errorf("%s, TLS %v, HTTP/%d: %s %s of %s, %v", network, secure, version, r.Proto, r.RequestURI, r.Host, r.Header)
				}
				if secure && !res.certExpires.Equal(expires) {
					t.Errorf("certificate expires %v, want %v", res.certExpires, expires)
				}
			}
		}
	}
}

func TestHTTPProbeVersion2Judges(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 40_000)
	s := newWebServer(t, "tcp", nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/404":
			w.WriteHeader(404)
			_, _ = io.WriteString(w, big)
		case "/abort":
			_, _ = io.WriteString(w, big)
			panic(http.ErrAbortHandler)
		case "/endless":
			for {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		case "/header":
			for i := range 100 {
				w.Header().Set("X-"+strings.Repeat("x", i+1), strings.Repeat("y", 1000))
			}
		}
	}))
	for _, tt := range []struct {
		path, expect string
		want         Reason
		err          string
	}{
		{"/", "", "", ""},
		{"/endless", "", "", ""},
		{"/endless", "xx", "", ""},
		{"/endless", "y", L7RSP, `"y" is not in the body's 65536 bytes`},
		{"/404", "", L7STS, "status 404, want 200-399"},
		{"/", "x", L7RSP, `"x" is not in the body's 0 bytes`},
		{"/abort", "", L7RSP, "stream"},
		{"/header", "", L7RSP, ""},
	} {
		err := s.probe(Spec{Type: "http", HTTP: HTTP{Path: tt.path, Version: 2, ExpectBody: tt.expect}})
		wantReasonf(t, tt.path, err, tt.want, tt.err)
	}
	eventually(t, func() bool { return s.open.Load() == 0 })
}

func wantReasonf(t *testing.T, name string, err error, reason Reason, words string) {
	t.Helper()
	f := (*Failure)(nil)
	switch {
	case reason == "" && err == nil:
	case !errors.As(err, &f) || f.Reason != reason || !strings.Contains(err.Error(), words):
		t.Errorf("%s: %v, want %q with %q", name, err, reason, words)
	}
}

// What HTTP/2 makes of servers that do not speak it.
func TestHTTPProbeVersion2Failures(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert := ca.issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	for _, tt := range []struct {
		name    string
		tls     bool
		script  func(net.Conn)
		timeout time.Duration
		want    Reason
		err     string
	}{
		{name: "HTTP/1.1", script: answering(0, httpAnswer("200 OK", "")), want: L7RSP},
		{name: "another protocol", script: speak(t, "<220 mail.example.org\r\n"), want: L7RSP},
		{name: "closed at once", script: func(net.Conn) {}, want: L7RSP},
		{name: "silent", script: untilEnd, timeout: shortTimeout, want: L7TOUT},
		{name: "no ALPN", tls: true, script: overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, untilEnd), want: L6RSP, err: "speaks none of h2"},
		{name: "HTTP/1.1 only", tls: true, script: overTLS(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}, untilEnd), want: L6RSP, err: "no application protocol"},
		{name: "not TLS", tls: true, script: speak(t, "<220 mail.example.org\r\n"), want: L6RSP, err: "does not look like a TLS handshake"},
		{name: "no handshake", tls: true, script: untilEnd, timeout: shortTimeout, want: L6TOUT},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.timeout == 0 {
				tt.timeout = longTimeout
			}
			s := newScripted(t, "tcp", tt.script)
			for typ, spec := range map[string]Spec{
				"http": {HTTP: HTTP{Version: 2, TLS: tt.tls}}, "grpc": {GRPC: GRPC{TLS: tt.tls}},
			} {
				spec.Type, spec.TLS = typ, TLS{CA: ca.file}
				wantReasonf(t, typ, s.probe(spec, tt.timeout), tt.want, tt.err)
			}
		})
	}
}

// HTTPS by HTTP/1.1 at servers that break off.
func TestHTTPProbeOverTLSFailures(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(time.Hour), "127.0.0.1")}}
	for _, tt := range []struct {
		name   string
		script func(net.Conn)
		want   Reason
		err    string
	}{
		{"closed", overTLS(cfg, func(net.Conn) {}), L7RSP, "closed before the answer was complete"},
		{"status", overTLS(cfg, answering(0, httpAnswer("503 Busy", "no"))), L7STS, "status 503"},
	} {
		s := newScripted(t, "tcp", tt.script)
		err := s.probe(Spec{Type: "http", TLS: TLS{CA: ca.file}, HTTP: HTTP{TLS: true}}, longTimeout)
		wantReasonf(t, tt.name, err, tt.want, tt.err)
	}
}

func TestHTTPProbeExpectsARegex(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", answering(3*time.Millisecond, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nlag: ", "12\nup\n"))
	for expr, want := range map[string]string{
		`lag: \d+`: "", `(?m)^up$`: "", `up\n$`: "",
		`^up`: `/^up/ is not in the body's 11 bytes`, `lag: \d{3}`: "is not in the body's 11 bytes",
	} {
		reason := L7RSP
		if want == "" {
			reason = ""
		}
		wantReasonf(t, expr, s.probe(Spec{Type: "http", HTTP: HTTP{ExpectBodyRegex: expr}}, longTimeout), reason, want)
	}
}

func TestHTTP2ProbesLeaveNothingOpen(t *testing.T) {
	ca := newAuthority(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(time.Hour), "127.0.0.1")}}
	for _, with := range []*tls.Config{nil, cfg} {
		s := newWebServer(t, "tcp", with, healthService(t))
		for _, spec := range []Spec{
			{Type: "http", HTTP: HTTP{Version: 2, TLS: with != nil, Method: "OPTIONS"}},
			{Type: "grpc", GRPC: GRPC{TLS: with != nil}},
		} {
			spec.TLS.CA = ca.file
			p := spec.Prober(s.network, s.address)
			before := 0
			for i := range 110 {
				if i == 10 {
					before = openDescriptors(t)
				}
				if err := probeOnce(p, longTimeout); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, func() bool { return s.open.Load() == 0 && openDescriptors(t) <= before })
		}
	}
}

func TestHTTP2ProbesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", untilEnd)
	for _, spec := range []Spec{{Type: "http", HTTP: HTTP{Version: 2}}, {Type: "grpc"}} {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(20*time.Millisecond, cancel)
		start := time.Now()
		_ = spec.Prober("tcp", s.address).Probe(ctx)
		if took := time.Since(start); took > longTimeout/2 {
			t.Errorf("%s: returned after %v", spec.Type, took)
		}
		timer.Stop()
		cancel()
	}
}
