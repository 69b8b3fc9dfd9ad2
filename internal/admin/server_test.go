package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room is that of a process without limits.
var room = Room{Places: func() int { return 64 }, Count: func(int) {}}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fake is a Daemon that says what it is told to.
type fake struct {
	mu      sync.Mutex
	status  Status
	ready   error
	live    error
	reloads int
	result  ReloadResult
	hang    chan struct{} // if set, Reload and Ready wait for it,
	entered chan struct{} // having said so, if this is set

	fakeOperator
}

func (f *fake) wait() {
	if f.hang == nil {
		return
	}
	if f.entered != nil {
		f.entered <- struct{}{}
	}
	<-f.hang
}

func (f *fake) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *fake) Reload(context.Context) ReloadResult {
	f.wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reloads++
	return f.result
}

func (f *fake) Ready() error {
	f.wait()
	return f.ready
}

func (f *fake) Live() error { return f.live }

func startSocket(t *testing.T, d Daemon) (path string, s *Server) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "run", "s")
	s, err := ListenSocket(path, d, room, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path, s
}

func startHTTP(t *testing.T, d Daemon) (url string, s *Server) {
	t.Helper()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "some_metric 1\n") })
	s, err := ListenHTTP("127.0.0.1:0", d, metrics, room, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return "http://" + s.Addr().String(), s
}

// ask makes one request on a connection of its own.
func ask(t *testing.T, client *http.Client, method, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, client, req)
}

func do(t *testing.T, client *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// What each listener offers, and that it offers nothing else.
func TestEndpoints(t *testing.T) {
	d := &fake{status: sample(), ready: errors.New("stopping"), result: ReloadResult{OK: true}}
	path, _ := startSocket(t, d)
	url, _ := startHTTP(t, d)
	socket := NewClient(path).http

	for _, tt := range []struct {
		method, path     string
		onSocket, onHTTP int
		body             string
	}{
		{"GET", "/v1/status", 200, 200, `"name": "postgres"`},
		{"HEAD", "/v1/status", 200, 200, ""},
		{"POST", "/v1/status", 405, 405, ""},
		{"DELETE", "/v1/status", 405, 405, ""},
		{"POST", "/v1/reload", 200, 404, ""},
		{"GET", "/v1/reload", 405, 404, ""},
		{"GET", "/readyz", 503, 503, "stopping\n"},
		{"GET", "/livez", 200, 200, "ok\n"},
		{"POST", "/livez", 405, 405, ""},
		{"GET", "/metrics", 404, 200, ""},
		{"POST", "/metrics", 404, 405, ""},
		{"GET", "/", 404, 200, ""},
		{"POST", "/", 404, 405, ""},
		{"GET", "/etc/passwd", 404, 404, ""},
		{"GET", "/v1/status/../../x", 404, 404, ""},
		{"TRACE", "/", 404, 405, ""},
	} {
		for _, on := range []struct {
			name   string
			client *http.Client
			url    string
			want   int
		}{
			{"socket", socket, "http://poise", tt.onSocket},
			{"http", newClient(), url, tt.onHTTP},
		} {
			resp, body := ask(t, on.client, tt.method, on.url+tt.path)
			if resp.StatusCode != on.want || !strings.Contains(body, tt.body) {
				t.Errorf("%s %s on %s: %d, want %d; %q", tt.method, tt.path, on.name, resp.StatusCode, on.want, body)
			}
			if resp.StatusCode == 405 && resp.Header.Get("Allow") == "" {
				t.Errorf("%s %s on %s: no Allow", tt.method, tt.path, on.name)
			}
		}
	}
	if d.reloads != 1 {
		t.Errorf("%d reloads", d.reloads)
	}
}

func TestStatusSurvivesJSON(t *testing.T) {
	want := sample()
	want.RatesOver = 0
	for i := range want.Services {
		want.Services[i].Rates = nil
	}
	want.Services[2].UDP.Rates = nil
	want.Services[1].TLS, want.Services[1].UDP = &ServiceTLS{}, &ServiceUDP{}
	want.Services[3].TLS = &ServiceTLS{Certificates: []Certificate{{Path: "/nameless.pem"}}}
	for _, p := range want.Pools {
		for i := range p.Backends {
			p.Backends[i].Rates = nil
		}
	}
	url, _ := startHTTP(t, &fake{status: want})
	resp, body := ask(t, newClient(), "GET", url+"/v1/status")
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Error(ct)
	}
	var got Status
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want.Services[3].Listen = []string{} // never null
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if strings.Contains(body, "null") {
		t.Error(body)
	}

	url, _ = startHTTP(t, &fake{})
	if _, body := ask(t, newClient(), "GET", url+"/v1/status"); strings.Contains(body, "null") {
		t.Error(body)
	}
}

func TestSecurityHeaders(t *testing.T) {
	url, _ := startHTTP(t, &fake{status: sample()})
	for _, path := range []string{"/", "/metrics", "/v1/status", "/nothing"} {
		resp, _ := ask(t, newClient(), "GET", url+path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'",
			"X-Content-Type-Options":  "nosniff",
			"X-Frame-Options":         "DENY",
			"Referrer-Policy":         "no-referrer",
			"Cache-Control":           "no-store",
		} {
			if got := resp.Header.Get(name); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Error("other sites may read", path)
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	url, _ := startHTTP(t, &fake{})
	req, _ := http.NewRequest("GET", url+"/livez", nil)
	req.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	resp, err := newClient().Do(req)
	if err != nil {
		return // closed while we were still writing
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(resp.Status)
	}
}

func TestAddressInUse(t *testing.T) {
	_, s := startHTTP(t, &fake{})
	_, err := ListenHTTP(s.Addr().String(), &fake{}, http.NotFoundHandler(), room, quiet())
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Error(err)
	}
	if _, err := ListenHTTP("127.0.0.1", &fake{}, http.NotFoundHandler(), room, quiet()); err == nil {
		t.Error("listens without a port")
	}
}

// Close lets what is being answered finish.
func TestCloseFinishesRequests(t *testing.T) {
	d := &fake{hang: make(chan struct{}), entered: make(chan struct{}, 1), result: ReloadResult{OK: true, Changes: []string{"pool pg: added"}}}
	path, s := startSocket(t, d)
	answer := make(chan ReloadResult)
	go func() {
		res, err := NewClient(path).Reload(t.Context())
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	<-d.entered
	closing := make(chan error)
	go func() { closing <- s.Close() }()
	close(d.hang)
	if res := <-answer; !res.OK || !slices.Equal(res.Changes, []string{"pool pg: added"}) {
		t.Errorf("%+v", res)
	}
	if err := <-closing; err != nil {
		t.Error(err)
	}
}

// Close does not wait for ever for a request that hangs.
func TestCloseIsBounded(t *testing.T) {
	d := &fake{hang: make(chan struct{}), entered: make(chan struct{}, 1)}
	_, s := startSocket(t, d)
	c, err := net.Dial("unix", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	<-d.entered
	if err := errors.Join(s.Close(), s.Close()); err != nil { // returns although d does not
		t.Error(err)
	}
	if _, err := bufio.NewReader(c).ReadByte(); err == nil {
		t.Error("the hanging request was answered")
	}
	close(d.hang)
}
