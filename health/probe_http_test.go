package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answering is a script that reads a request and sends the parts, a pause before
// each but the first.
func answering(pause time.Duration, parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		for i, part := range parts {
			if i > 0 {
				time.Sleep(pause)
			}
			if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
	}
}

func httpAnswer(status, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

func TestHTTPProbe(t *testing.T) {
	t.Parallel()
	const pause = 3 * time.Millisecond
	big := strings.Repeat("x", 4*maxHTTPBody)
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		name   string
		spec   HTTP
		script func(net.Conn)
		want   Reason // "" = healthy
		err    string // part of the error
	}{
		{name: "200", script: answering(0, httpAnswer("200 OK", "fine"))},
		{name: "204", script: answering(0, "HTTP/1.1 204 No Content\r\n\r\n")},
		{name: "HTTP/1.0", script: answering(0, "HTTP/1.0 200 OK\r\n\r\nfine")},
		{name: "in pieces", script: answering(pause, "HT", "TP/1.1 200 O", "K\r\nContent-Le", "ngth: 4\r", "\n\r\nfi", "ne")},
		{name: "no Content-Length, ends with the connection (O-12 f)", script: answering(0, "HTTP/1.1 200 OK\r\n\r\n", "fine")},
		{name: "chunked", script: answering(pause, chunked, "2\r\nfi\r\n", "2\r\nne\r\n", "0\r\n\r\n")},
		{name: "interim answers first", script: answering(pause, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", httpAnswer("200 OK", ""))},
		{name: "redirect is an answer", script: answering(0, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")},
		{name: "HEAD", spec: HTTP{Method: "HEAD"}, script: answering(0, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")},
		{name: "body larger than what is read", script: answering(0, httpAnswer("200 OK", big))},

		{name: "status (O-12 e)", script: answering(0, httpAnswer("404 Not Found", strings.Repeat("e", 40_000))), want: L7STS, err: "status 404, want 200-399"},
		{name: "status outside of what is configured", spec: HTTP{ExpectStatus: []StatusRange{{200, 200}, {204, 299}}}, script: answering(0, httpAnswer("203 OK", "")), want: L7STS, err: "status 203, want 200,204-299"},
		{name: "error status that is expected", spec: HTTP{ExpectStatus: []StatusRange{{404, 404}}}, script: answering(0, httpAnswer("404 Not Found", ""))},
		{name: "switching protocols", script: answering(0, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), want: L7STS, err: "status 101"},

		{name: "expected body", spec: HTTP{ExpectBody: "ready"}, script: answering(0, httpAnswer("200 OK", "all ready now"))},
		{name: "expected body in pieces", spec: HTTP{ExpectBody: "ready"}, script: answering(pause, chunked, "3\r\nxre\r\n", "2\r\nad\r\n", "1\r\ny\r\n", "0\r\n\r\n")},
		{name: "expected body at the limit", spec: HTTP{ExpectBody: "ready"}, script: answering(0, httpAnswer("200 OK", big[:maxHTTPBody-5]+"ready"+big))},
		{name: "expected body across a growth of the buffer", spec: HTTP{ExpectBody: "ready"}, script: answering(0, httpAnswer("200 OK", big[:4<<10-2]+"ready"+big))},
		{name: "expected body beyond the limit", spec: HTTP{ExpectBody: "ready"}, script: answering(0, httpAnswer("200 OK", big[:maxHTTPBody-4]+"ready")), want: L7RSP, err: `"ready" is not in the body's 65536 bytes`},
		{name: "other body", spec: HTTP{ExpectBody: "ALIVE"}, script: answering(0, httpAnswer("200 OK", "DEAD\n")), want: L7RSP, err: `"ALIVE" is not in the body's 5 bytes`},
		{name: "no body where one is expected", spec: HTTP{ExpectBody: "ready"}, script: answering(0, "HTTP/1.1 204 No Content\r\n\r\n"), want: L7RSP, err: "0 bytes"},

		{name: "closed at once", script: func(net.Conn) {}, want: L7RSP},
		{name: "closed after the request", script: answering(0), want: L7RSP, err: "closed before the answer was complete"},
		{name: "closed in the header", script: answering(0, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n"), want: L7RSP, err: "closed before the answer was complete"},
		{name: "closed in the body", script: answering(0, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfine"), want: L7RSP, err: "closed before the answer was complete"},
		{name: "another protocol (O-12 b)", script: func(conn net.Conn) {
			_, _ = io.WriteString(conn, "220 mail ready\r\n")
			_, _ = io.Copy(io.Discard, conn)
		}, want: L7RSP, err: "malformed"},
		{name: "bad chunk", script: answering(0, chunked, "zz\r\n"), want: L7RSP, err: "chunk"},
		{name: "endless header", script: answering(0, "HTTP/1.1 200 OK\r\n", strings.Repeat("X-Filler: 0123456789\r\n", 10_000)), want: L7RSP, err: "header of more than 65536 bytes"},
		{name: "endless header line", script: answering(0, "HTTP/1.1 200 ", strings.Repeat("x", 2*maxHTTPHeader)), want: L7RSP, err: "header of more than 65536 bytes"},
		{name: "reset", script: func(conn net.Conn) { answering(0)(conn); _ = conn.(*net.TCPConn).SetLinger(0) }, want: L7RSP, err: "reset by peer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", tt.script)
			err := s.probe(Spec{Type: "http", HTTP: tt.spec}, longTimeout)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantReason(t, err, tt.want)
			if !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q does not say %q", err, tt.err)
			}
		})
	}
}

// The whole exchange has one deadline, whatever trickles in meanwhile.
func TestHTTPProbeTimesOut(t *testing.T) {
	t.Parallel()
	trickle := func(head string) func(net.Conn) {
		parts := []string{head}
		for range 60 {
			parts = append(parts, strings.Repeat("x", 50))
		}
		return answering(50*time.Millisecond, parts...) // 3 s in all
	}
	for name, script := range map[string]func(net.Conn){
		"no answer":             func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn); time.Sleep(shortTimeout) },
		"trickled body (O-12c)": trickle("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"),
		"trickled without end":  trickle("HTTP/1.1 200 OK\r\n\r\n"),
		"trickled header":       trickle("HTTP/1.1 200 OK\r\nX-Filler: "),
		"stalled body": answering(3*shortTimeout, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfine",
			"too late"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", script)
			start := time.Now()
			err := s.probe(Spec{Type: "http"}, shortTimeout)
			took := time.Since(start)
			wantReason(t, err, L7TOUT)
			if took < shortTimeout {
				t.Errorf("gave up after %v", took)
			}
		})
	}
}

// Once the answer is known, a body that trickles on for ever is not waited for
// and does not change it.
func TestHTTPProbeKnowsBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		head string
		want Reason
	}{
		"match":  {"HTTP/1.1 200 OK\r\n\r\nready", ""},
		"status": {"HTTP/1.1 503 Busy\r\n\r\nready", L7STS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", func(conn net.Conn) {
				answering(0, tt.head)(conn)
				for {
					time.Sleep(20 * time.Millisecond)
					if _, err := io.WriteString(conn, "."); err != nil {
						return
					}
				}
			})
			start := time.Now()
			err := s.probe(Spec{Type: "http", HTTP: HTTP{ExpectBody: "ready"}}, longTimeout)
			if took := time.Since(start); took > longTimeout/2 {
				t.Errorf("took %v", took)
			}
			if tt.want != "" {
				wantReason(t, err, tt.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHTTPProbeRequest(t *testing.T) {
	for _, tt := range []struct {
		network            string
		spec               HTTP
		method, uri, host  string
		hostIsTheAddresses bool
	}{
		{network: "tcp", method: "GET", uri: "/", hostIsTheAddresses: true},
		{network: "tcp", spec: HTTP{Path: "/health?full=1", Method: "HEAD", Host: "db.example.org"}, method: "HEAD", uri: "/health?full=1", host: "db.example.org"},
		{network: "tcp", spec: HTTP{Path: "/a%2Fb", Method: "OPTIONS"}, method: "OPTIONS", uri: "/a%2Fb", hostIsTheAddresses: true},
		{network: "unix", spec: HTTP{Path: "/x"}, method: "GET", uri: "/x", host: "localhost"},
	} {
		seen := make(chan *http.Request, 1)
		s := newScripted(t, tt.network, func(conn net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				t.Error(err)
				return
			}
			seen <- req
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		})
		if err := s.probe(Spec{Type: "http", HTTP: tt.spec}, longTimeout); err != nil {
			t.Fatal(err)
		}
		req := <-seen
		if tt.hostIsTheAddresses {
			tt.host = s.address
		}
		if req.Method != tt.method || req.RequestURI != tt.uri || req.Host != tt.host {
			t.Errorf("%s %s of %s, want %s %s of %s", req.Method, req.RequestURI, req.Host, tt.method, tt.uri, tt.host)
		}
		if ua := req.UserAgent(); !strings.HasPrefix(ua, "poise/") || strings.ContainsAny(ua, " ()") {
			t.Errorf("User-Agent %q", ua)
		}
		if !req.Close {
			t.Error("does not say Connection: close")
		}
	}
}

// A zone is this host's business; no server is told of it.
func TestHTTPProbeOfALinkLocalAddress(t *testing.T) {
	p := newHTTPProber(Spec{}, "tcp", "[fe80::1%eth0]:80").(*httpProber)
	req, err := p.request()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := req.Write(&out); err != nil {
		t.Fatal(err)
	}
	if want := "Host: [fe80::1]:80\r\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in %q", want, out.String())
	}
}

func TestHTTPProbeOfABadRequest(t *testing.T) {
	for _, h := range []HTTP{{Path: "no slash"}, {Method: "B D"}, {Path: "/%zz"}} {
		wantReason(t, probeOnce(Spec{Type: "http", HTTP: h}.Prober("tcp", "127.0.0.1:1"), longTimeout), L7RSP)
	}
}

// Case O-12 e and the descriptors of it: large error pages wedge nothing, are
// read to their end, and the server comes back.
func TestHTTPProbeRecoversFromErrorPages(t *testing.T) {
	page := httpAnswer("404 Not Found", strings.Repeat("e", 40_000))
	var served atomic.Int64
	var closing atomic.Bool // a probe that is cut short may leave in any way
	s := newScripted(t, "tcp", func(conn net.Conn) {
		answer := page
		if served.Add(1) > 20 {
			answer = httpAnswer("200 OK", "fine")
		}
		_, reqErr := http.ReadRequest(bufio.NewReader(conn))
		_, respErr := io.WriteString(conn, answer)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, endErr := io.Copy(io.Discard, conn)
		if err := errors.Join(reqErr, respErr, endErr); err != nil && !closing.Load() {
			t.Errorf("a probe ended with %v", err)
		}
	})
	changes := make(chan bool, 10)
	m := NewMonitor(func(_ string, up bool, _ Status) { changes <- up }, nil)
	defer m.Close()
	m.Set([]Target{{Key: "k", Network: s.network, Address: s.address, Spec: Spec{
		Type: "http", Interval: 2 * time.Millisecond, Timeout: longTimeout, Rise: 2, Fall: 3,
	}}})
	if <-changes {
		t.Fatal("up first")
	}
	if !<-changes {
		t.Fatal("down twice")
	}
	st, _ := m.Status("k")
	if n := st.FailuresBy[L7STS]; n != 20 || failed(st) != 20 {
		t.Errorf("failures %v, want 20 of %s", st.FailuresBy, L7STS)
	}
	if st.Reason != "" || st.Detail != "" {
		t.Errorf("up, but %s %s", st.Reason, st.Detail)
	}
	before := openDescriptors(t)
	eventually(t, func() bool { st, _ := m.Status("k"); return st.Probes > 120 })
	closing.Store(true)
	m.Close()
	eventually(t, func() bool { return s.open.Load() == 0 })
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after 100 checks", before, after)
	}
	if s.openMax.Load() > 5 { // a script may end some time after its probe
		t.Errorf("%d probe connections at once", s.openMax.Load())
	}
}

func FuzzHTTPAnswer(f *testing.F) {
	f.Add([]byte(httpAnswer("200 OK", "ready")))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n0\r\n\r\n"))
	f.Add([]byte("220 mail ready\r\n"))
	p := newHTTPProber(Spec{HTTP: HTTP{ExpectBody: "ready"}}, "tcp", "127.0.0.1:1").(*httpProber)
	f.Fuzz(func(t *testing.T, answer []byte) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				_, _ = theirs.Write(answer)
			}
		}()
		defer ours.Close()
		req, err := p.request()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), longTimeout)
		defer cancel()
		defer setDeadline(ctx, ours)()
		resp, err := ask(ours, req)
		if err == nil {
			err = p.judge(resp)
		}
		if err == nil && !strings.Contains(string(answer), "HTTP/") {
			t.Errorf("healthy on %q", answer)
		}
		if err != nil && asFailure(err).Reason == L7TOUT {
			t.Errorf("%q is a timeout: %v", answer, err)
		}
	})
}
