package udp_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/udp"
	"github.com/poise-lb/poise/l4/wire"
)

// A backend to which there is no route is passed over; without any other the client
// is dropped, and it is not the backend's fault that a source address is missing.
func TestNoWayToABackend(t *testing.T) {
	if !alone(t) {
		return
	}
	far := balance.BackendSpec{Name: "far", Weight: 100}
	far.Addr.AddrPort = netip.MustParseAddrPort("192.0.2.1:53")
	p := start(t, append(specs(named(t, "near")), far))
	for range 6 {
		if got := ask(t, p.dial(), "x"); got != "near" {
			t.Errorf("got %q", got)
		}
	}
	backend := p.pool.Backends()[1]
	if n := backend.Stats.ConnectFailures[l4.ConnectUnreachable].Load(); n == 0 || backend.Active() != 0 {
		t.Errorf("%d failures, %d leases", n, backend.Active())
	}
	p.pool.Update(balance.Spec{Name: "pool", Algorithm: "round-robin", Backends: []balance.BackendSpec{far}})
	st := p.stats()
	for _, sprayed := range []bool{false, true} {
		r := p.route
		r.Spec.Spray = sprayed
		p.run(r)
		before := st.Outcomes[l4.ConnectFailed].Load()
		p.dial().Write([]byte("x"))
		eventually(t, "the failure", func() bool { return st.Outcomes[l4.ConnectFailed].Load() == before+1 })
		r.Source = netip.MustParseAddr("198.51.100.1")
		p.run(r)
		before = st.Outcomes[l4.NoLocalPort].Load()
		p.dial().Write([]byte("x"))
		eventually(t, "the missing address", func() bool { return st.Outcomes[l4.NoLocalPort].Load() == before+1 })
	}
	if n := st.Dropped[udp.DropRefused].Load(); n != 4 {
		t.Errorf("%d dropped", n)
	}
}

// A listener that changes hands takes nobody along.
func TestListenerGoesToAnotherService(t *testing.T) {
	p := start(t, specs(named(t, "a")), func(r *udp.Route) { r.Spec.MaxSessions = 1 })
	c := p.dial()
	ask(t, c, "x")
	other := p.route
	other.Spec.Name = "other"
	other.Pool = balance.New(balance.Spec{Name: "others", Algorithm: "first", Backends: specs(named(t, "b"))}, nil)
	p.run(other)
	if got := ask(t, c, "x"); got != "b" {
		t.Errorf("got %q", got)
	}
	if s := p.ended(1)[0]; s.Service != "service" || s.Backend != "a" || s.DatagramsIn != 1 {
		t.Errorf("%+v", s)
	}
	for _, s := range p.Services() {
		if want := map[string]int64{"service": 0, "other": 1}[s.Name]; s.Active() != want {
			t.Errorf("%s: %d sessions", s.Name, s.Active())
		}
	}
}

// New fields of the PROXY header take effect; the same ones move nobody.
func TestProxyFieldsChange(t *testing.T) {
	back := echo(t, "a")
	p := start(t, specs(back), func(r *udp.Route) { r.SendProxy = udp.ProxyEach })
	c := p.dial()
	for _, v := range []string{"one", "one", "two"} {
		r := p.route
		r.ProxyTLVs = []wire.TLV{{Type: 0xE0, Value: []byte(v)}}
		p.run(r)
		h, _ := stated(t, []byte(ask(t, c, "x")))
		if got, _ := h.TLV(0xE0); string(got) != v {
			t.Errorf("%q, want %q", got, v)
		}
	}
	if n := back.senders(); n != 2 {
		t.Errorf("%d sessions for two headers", n)
	}
}

// A buffer that may be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// However much is dropped, the log gets a line a second.
func TestLogIsNotFlooded(t *testing.T) {
	loops, err := loop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	log := new(buffer)
	s := udp.NewServer(service.Host{Loops: loops, Descriptors: new(sock.Descriptors), Log: slog.New(slog.NewTextHandler(log, nil))}, udp.Hooks{})
	t.Cleanup(s.Close)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	pool := balance.New(balance.Spec{Name: "empty", Algorithm: "first"}, nil)
	change, err := s.Prepare([]udp.Route{{
		Spec: udp.Spec{Name: "service", Idle: time.Minute, Listen: []l4.Listen{{Addr: at}}}, Pool: pool,
	}})
	if err != nil {
		t.Fatal(err)
	}
	change.Commit()
	p := &proxy{t: t, addr: at, Server: s}
	c := p.dial()
	begun := time.Now()
	for time.Since(begun) < 1500*time.Millisecond {
		c.Write([]byte("x"))
		time.Sleep(time.Millisecond)
	}
	st := p.stats()
	eventually(t, "a second line", func() bool {
		c.Write([]byte("x"))
		return strings.Contains(log.String(), "more_since_last")
	})
	lines := strings.Count(log.String(), "datagram dropped: no eligible backend")
	if most := 2 + int(time.Since(begun)/time.Second); lines > most || !strings.Contains(log.String(), "service=service pool=empty") {
		t.Errorf("%d lines for %d datagrams:\n%s", lines, st.Dropped[udp.DropRefused].Load(), log)
	}
}

func TestDropReasonNames(t *testing.T) {
	var names []string
	for r := range udp.NumDropReasons + 1 {
		names = append(names, udp.DropReason(r).String())
	}
	if got := strings.Join(names, " "); got != "refused too_large buffer_full send_failed overflow loop unknown" {
		t.Errorf("got %s", got)
	}
}

// Of the descriptors of sessions none is left when they have ended.
func TestDescriptorsAreGivenBack(t *testing.T) {
	p := start(t, specs(echo(t, "a")), func(r *udp.Route) { r.Spec.Replies = 1 })
	c := p.dial()
	before := descriptors(t)
	for range 200 {
		ask(t, c, "x")
	}
	eventually(t, "the sessions to end", func() bool { return p.Active() == 0 })
	eventually(t, "the descriptors", func() bool { return descriptors(t) == before })
}
