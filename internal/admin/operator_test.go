package admin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeOperator is the part of fake that an operator speaks to.
type fakeOperator struct {
	asked []any // what was asked for, in order
	state BackendState
	conns []Conn
	err   error
}

func (f *fake) Backend(pool, backend string) (BackendState, error) {
	return f.operated([]string{pool, backend})
}

func (f *fake) SetState(pool, backend string, r StateRequest) (BackendState, error) {
	return f.operated([]string{pool, backend}, r)
}

func (f *fake) SetWeight(pool, backend string, weight *int) (BackendState, error) {
	return f.operated([]string{pool, backend}, weight)
}

func (f *fake) Conns(q ConnQuery) ([]Conn, error) {
	_, err := f.operated(q)
	return f.conns, err
}

func (f *fake) operated(asked ...any) (BackendState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, asked...)
	return f.state, f.err
}

// send makes one request over the socket.
func send(t *testing.T, socket, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://poise"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := NewClient(socket).http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// What the client asks for reaches the operator as it was meant, whatever is in
// the names.
func TestOperatorRequests(t *testing.T) {
	d := &fake{}
	d.state = BackendState{
		Pool: "pg", Backend: "db1", Address: "10.0.0.11:5432", Operator: "drain", State: "drain", Reason: "why",
		Weight: 7, FileWeight: 100, Connections: 3, Closed: 2, Warnings: []string{"careful"},
	}
	d.conns = []Conn{{Client: netip.MustParseAddrPort("[2001:db8::1]:1234"), Service: "s", Pool: "pg", State: "queued", Age: 1.5, BytesIn: 7}}
	socket, _ := startSocket(t, d)
	c, ctx := NewClient(socket), t.Context()
	weight := 50
	for _, backend := range []string{"db1", "10.0.0.11:5432", "unix:/run/db 1.sock", "db.example.org/[::1]:1", "a%2Fb", "ü?x#y&z"} {
		d.asked = nil
		s, err := c.Backend(ctx, "pg", backend)
		if diff := cmp.Diff(d.state, s); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", backend, err, diff)
		}
		if _, err := c.SetState(ctx, "pg", backend, StateRequest{State: OperatorDrain, Close: true}); err != nil {
			t.Error(err)
		}
		if _, err := c.SetWeight(ctx, "pg", backend, &weight); err != nil {
			t.Error(err)
		}
		if _, err := c.SetWeight(ctx, "pg", backend, nil); err != nil {
			t.Error(err)
		}
		names := []string{"pg", backend}
		want := []any{names, names, StateRequest{"drain", true}, names, &weight, names, (*int)(nil)}
		if diff := cmp.Diff(want, d.asked); diff != "" {
			t.Errorf("%s:\n%s", backend, diff)
		}
	}
	d.asked = nil
	q := ConnQuery{Pool: "pg", Backend: "a b&c", Limit: 7}
	l, err := c.Conns(ctx, q)
	if diff := cmp.Diff(d.conns, l.Conns, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); err != nil || diff != "" || l.Now.IsZero() {
		t.Errorf("%v\n%s", err, diff)
	}
	if diff := cmp.Diff([]any{q}, d.asked); diff != "" {
		t.Error(diff)
	}

	d.err = NotFound{"there is no such thing"}
	if _, err := c.SetState(ctx, "pg", "db1", StateRequest{State: OperatorReady}); err == nil || err.Error() != "there is no such thing" {
		t.Errorf("got %v", err)
	}
	if status, _ := send(t, socket, "GET", "/v1/backends/pg/db1", ""); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	d.err = errors.New("broken")
	if _, err := c.Conns(ctx, ConnQuery{Limit: 1}); err == nil || err.Error() != "broken" {
		t.Errorf("got %v", err)
	}
}

// A request that is not understood changes nothing and says why.
func TestOperatorRefuses(t *testing.T) {
	d := &fake{}
	socket, _ := startSocket(t, d)
	const state, weight = "/v1/backends/pg/db1/state", "/v1/backends/pg/db1/weight"
	for _, c := range []struct{ path, body, want string }{
		{state, ``, "it is empty"},
		{state, `drain`, "must be a JSON object"},
		{state, `{}`, `no state \"\"; write ready, drain or maint`},
		{state, `{"state": "up"}`, `no state \"up\"`},
		{state, `{"state": "drain"} {}`, "more than one value"},
		{state, `{"state": "drain", "clsoe": true}`, `unknown field \"clsoe\"`},
		{state, `{"state": "drain", "close": "` + strings.Repeat("x", maxRequest) + `"}`, "too large"},
		{weight, `{}`, "from 0 to 65535, or null"},
		{weight, `{"weight": -1}`, "from 0 to 65535"},
		{weight, `{"weight": 65536}`, "from 0 to 65535"},
		{weight, `{"weight": 1.5}`, "from 0 to 65535"},
		{weight, `{"weight": "1"}`, "from 0 to 65535"},
	} {
		if status, answer := send(t, socket, "POST", c.path, c.body); status != http.StatusBadRequest || !strings.Contains(answer, c.want) {
			t.Errorf("%s %.60s: %d %s", c.path, c.body, status, answer)
		}
	}
	for _, query := range []string{"limit=0", "limit=10001", "limit=x"} {
		if status, answer := send(t, socket, "GET", "/v1/conns?"+query, ""); status != http.StatusBadRequest || !strings.Contains(answer, "from 1 to 10000") {
			t.Errorf("%s: %d %s", query, status, answer)
		}
	}
	if len(d.asked) != 0 {
		t.Errorf("the operator was asked: %v", d.asked)
	}
	if status, _ := send(t, socket, "GET", state, ""); status != http.StatusMethodNotAllowed {
		t.Errorf("status %d", status)
	}
	if status, answer := send(t, socket, "GET", "/v1/conns", ""); status != http.StatusOK || !strings.Contains(answer, `"conns": []`) {
		t.Errorf("none: %d %s", status, answer)
	}
}

// Nobody who connects over TCP can change anything, or see who is connected.
func TestOperatorNotPublic(t *testing.T) {
	d := &fake{}
	url, _ := startHTTP(t, d)
	for _, path := range []string{"/v1/conns", "/v1/backends/pg/db1", "/v1/backends/pg/db1/state", "/v1/backends/pg/db1/weight"} {
		for _, method := range []string{"GET", "POST"} {
			if resp, _ := ask(t, newClient(), method, url+path); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, path, resp.StatusCode)
			}
		}
	}
	if len(d.asked) != 0 {
		t.Errorf("the operator was asked: %v", d.asked)
	}
}

// An older daemon does not know these requests.
func TestOperatorOfAnotherVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	old := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = old.Serve(ln) }()
	t.Cleanup(func() { old.Close(); <-done })
	_, err = NewClient(path).SetState(t.Context(), "pg", "db1", StateRequest{State: OperatorDrain})
	if err == nil || !strings.Contains(err.Error(), "of the same version?") {
		t.Errorf("got %v", err)
	}
}

func TestConnTable(t *testing.T) {
	var out strings.Builder
	err := ConnTable(&out, ConnList{Conns: []Conn{
		{Proto: "tcp", Client: netip.MustParseAddrPort("192.0.2.1:40000"), Service: "postgres", Pool: "pg", Backend: "db1", State: "open", Age: 90061, Idle: 2.25, BytesIn: 12, BytesOut: 123_456_789},
		{Proto: "tcp", Client: netip.MustParseAddrPort("[2001:db8::1]:40001"), Service: "postgres", Pool: "pg", State: "queued", Age: 0.5},
		{Proto: "udp", Client: netip.MustParseAddrPort("192.0.2.3:1"), Service: "dns", Pool: "pg", Backend: "evil\x1b[31m", State: "closing", Age: 75},
	}})
	const want = `  CLIENT               PROTO  SERVICE   POOL/BACKEND  STATE       AGE  IDLE  IN B  OUT B
  192.0.2.1:40000      tcp    postgres  pg/db1        open      1d 1h  2.2s    12   123M
  [2001:db8::1]:40001  tcp    postgres  pg            queued     0.5s    0s     0      0
  192.0.2.3:1          udp    dns       pg/evil�[31m  closing  1m 15s    0s     0      0
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, out.String()))
	}
}

func TestOperatorInStatus(t *testing.T) {
	file := 100
	s := Status{Pools: []Pool{{Name: "pg", Backends: []Backend{
		{Name: "db1", State: "drain", Operator: "drain", Reason: "drain by the operator since 2026-03-14 15:09:26", Weight: 50, FileWeight: &file},
		{Name: "db2", State: "up", Weight: 100},
	}}}}
	table := string(style{}.table(&s))
	for _, want := range []string{"50 (file: 100)", "    drain by the operator since 2026-03-14 15:09:26\n"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in the table:\n%s", want, table)
		}
	}
	if strings.Count(table, "file:") != 1 {
		t.Errorf("db2 has no other weight:\n%s", table)
	}
	url, _ := startHTTP(t, &fake{status: s})
	_, page := ask(t, newClient(), "GET", url+"/")
	for _, want := range []string{`50 <span class="soft">(file: 100)</span>`, `<span class="pill drain">drain</span>`, "drain by the operator since"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q on the page", want)
		}
	}
}
