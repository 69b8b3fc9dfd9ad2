package service_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/notice"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A protocol whose sockets are bound and do nothing.
type (
	svc      = service.Service[int]
	listener = service.Listener[route, *socket]
	server   = service.Server[route, int, *socket]
	plan     = service.Plan[route, int]
)

type route struct {
	service *svc
	number  int // of the configuration
}

type socket struct {
	listener              *listener
	fd                    atomic.Int64
	begun, retired, turns atomic.Int64
	waiting               int // turns there is something to take
}

func (s *socket) Descriptor() int { return int(s.fd.Load()) }
func (s *socket) Begin()          { s.begun.Add(1) }
func (s *socket) Retire(bool)     { s.retired.Add(1) }

func (s *socket) Turn() bool {
	s.turns.Add(1)
	s.waiting--
	return s.waiting > 0
}

func (s *socket) Close() {
	if fd := s.fd.Swap(-1); fd >= 0 {
		sock.Close(int(fd))
	}
}

type worker struct {
	service.Worker
	server *rig
}

func (w worker) Shut() {
	for _, l := range w.server.made {
		for _, s := range l.Sockets {
			s.Close()
		}
	}
}

type rig struct {
	*server
	t            *testing.T
	made         []*listener
	old, present []l4.Listen // of the last change
	runs         int
}

func start(t *testing.T, grace time.Duration) *rig {
	t.Helper()
	return startWith(t, nil, func(p *service.Protocol[route, *socket]) { p.Grace = grace })
}

func startWith(t *testing.T, opener *service.Opener, adjust func(*service.Protocol[route, *socket])) *rig {
	t.Helper()
	loops, err := loop.Start(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	r := &rig{t: t}
	p := service.Protocol[route, *socket]{
		Proto:   l4.TCP,
		Notices: []notice.Kind{{Text: "odd"}},
		Worker:  func(int, *loop.Loop) service.Worker { return worker{server: r} },
		Sockets: func(l *listener, fds []int) (list []*socket) {
			for _, fd := range fds {
				s := &socket{listener: l, waiting: 3}
				s.fd.Store(int64(fd))
				list = append(list, s)
			}
			r.made = append(r.made, l)
			return list
		},
		Succeed: func(old, present []*listener) {
			r.old, r.present = nil, nil
			for _, l := range old {
				r.old = append(r.old, l.Listen)
			}
			for _, l := range present {
				r.present = append(r.present, l.Listen)
			}
		},
	}
	if adjust != nil {
		adjust(&p)
	}
	r.server = service.New[route, int](service.Host{
		Loops: loops, Descriptors: new(sock.Descriptors), Log: slog.New(slog.DiscardHandler), Opener: opener,
	}, p)
	t.Cleanup(r.Close)
	return r
}

func (r *rig) plan(name string, at ...l4.Listen) plan {
	r.runs++
	n := r.runs
	return plan{
		Name: name, Listen: at,
		Bind: func(l l4.Listen, share bool) (int, error) {
			return sock.Bind(l.Addr, sock.ListenOptions{BindOptions: sock.BindOptions{Share: share}})
		},
		Adopt: func(l4.Listen, int) error { return nil },
		Route: func(s *svc) *route { return &route{s, n} },
	}
}

func (r *rig) run(plans ...plan) {
	r.t.Helper()
	c, err := r.Prepare(plans)
	if err != nil {
		r.t.Fatal(err)
	}
	c.Commit()
}

func (r *rig) names() (names []string) {
	for _, s := range r.Services() {
		names = append(names, s.Name)
	}
	return names
}

func free(t *testing.T) l4.Listen {
	t.Helper()
	for range 100 {
		addr := netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(22000)))
		if l, err := net.Listen("tcp", addr.String()); err == nil {
			l.Close()
			return l4.Listen{Addr: addr}
		}
	}
	t.Fatal("no free port")
	return l4.Listen{}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// A listener that stays is not touched, whichever service has it, and gets the new
// route; one that goes is retired, emptied and closed.
func TestReload(t *testing.T) {
	r := start(t, 0)
	a, b, c := free(t), free(t), free(t)
	r.run(r.plan("one", a, b))
	la, lb := r.At(a.Addr.Port())[0], r.At(b.Addr.Port())[0]
	one := la.Route().service
	r.run(r.plan("two", a), r.plan("one", c))
	if !slices.Equal(r.old, []l4.Listen{b}) || len(r.present) != 2 {
		t.Errorf("%v and %v", r.old, r.present)
	}
	if got := r.At(a.Addr.Port()); len(got) != 1 || got[0] != la || la.Route().number != 2 || la.Route().service.Name != "two" {
		t.Errorf("%v instead of %v", got, la)
	}
	for i, s := range la.Sockets {
		if s.begun.Load() != 1 || s.retired.Load() != 0 || s.Descriptor() < 0 {
			t.Errorf("socket %d of the listener that stays: begun %d, retired %d", i, s.begun.Load(), s.retired.Load())
		}
	}
	for i, s := range lb.Sockets {
		if s.retired.Load() != 1 || s.turns.Load() < 3 || s.Descriptor() >= 0 {
			t.Errorf("socket %d of the listener that goes: retired %d, turns %d", i, s.retired.Load(), s.turns.Load())
		}
	}
	lc := r.At(c.Addr.Port())[0]
	if lc.Route().service != one {
		t.Error("a service that stays is another one")
	}
	if lc.Number <= la.Number {
		t.Error("the later listener has the lower number")
	}
	r.run()
	if got := r.names(); len(got) != 0 {
		t.Errorf("services %v", got)
	}
}

// What cannot be bound leaves everything as it was, and names itself.
func TestPrepareFails(t *testing.T) {
	r := start(t, 0)
	a, b := free(t), free(t)
	r.run(r.plan("one", a))
	other, err := net.Listen("tcp", free(t).Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := l4.Listen{Addr: other.Addr().(*net.TCPAddr).AddrPort()}
	if _, err := r.Prepare([]plan{r.plan("one", b), r.plan("two", taken)}); err == nil {
		t.Fatal("it has bound what is taken")
	} else if want := "service two: listen " + taken.String(); err.Error()[:len(want)] != want {
		t.Error(err)
	}
	if got := r.names(); !slices.Equal(got, []string{"one"}) || len(r.At(b.Addr.Port())) != 0 || len(r.At(a.Addr.Port())) != 1 {
		t.Errorf("services %v", got)
	}
	c, err := r.Prepare([]plan{r.plan("two", b)}) // b is free again
	if err != nil {
		t.Fatal(err)
	}
	c.Abort()
	if l, err := net.Listen("tcp", b.Addr.String()); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
}

// A retired listener is there for as long as it is used, comes back as it is, and goes
// with its last client: nothing has to be asked for that.
func TestUsedListener(t *testing.T) {
	r := start(t, 0)
	a := free(t)
	r.run(r.plan("one", a))
	l := r.At(a.Addr.Port())[0]
	l.Use()
	for range 2 {
		if r.run(); !l.Retired() || l.Sockets[0].Descriptor() < 0 {
			t.Fatal("the listener is closed, or not retired")
		}
		if r.run(r.plan("one", a)); l.Retired() || r.At(a.Addr.Port())[0] != l {
			t.Fatal("the listener has not come back")
		}
	}
	c, err := r.Prepare([]plan{r.plan("two", a)})
	if err != nil {
		t.Fatal(err)
	}
	l.Leave() // it is claimed, so it stays
	c.Commit()
	if l.Sockets[0].Descriptor() < 0 || l.Route().service.Name != "two" {
		t.Error("a listener was closed under a change")
	}
	l.Use()
	r.StopAccepting()
	if l.Sockets[0].Descriptor() < 0 {
		t.Error("the listener is closed while it is used")
	}
	l.Leave()
	eventually(t, "the listener to close", func() bool { return len(r.At(a.Addr.Port())) == 0 })
}

// Grace is how long a listener is open at least.
func TestGrace(t *testing.T) {
	const grace = 50 * time.Millisecond
	r := start(t, grace)
	a := free(t)
	r.run(r.plan("one", a), r.plan("two", free(t)))
	one := r.At(a.Addr.Port())[0].Route().service
	one.Take(0)
	began := time.Now()
	r.run(r.plan("one", a))
	if took := time.Since(began); took < grace {
		t.Errorf("closed after %v", took)
	}
	one.Give()
}

// To list services changes nothing. A removed one is listed for as long as
// it has a client open, and is gone with that although it is never listed.
func TestListingChangesNothing(t *testing.T) {
	r := start(t, 0)
	a := free(t)
	r.run(r.plan("one", a), r.plan("two", free(t)))
	one := r.At(a.Addr.Port())[0].Route().service
	if !one.Take(1) || one.Take(1) || r.Active() != 1 || one.Active() != 1 {
		t.Fatalf("%d of 1, %d in all", one.Active(), r.Active())
	}
	r.run()
	for range 3 {
		if got := r.names(); !slices.Equal(got, []string{"one"}) || !r.Services()[0].Leaving() {
			t.Fatalf("services %v", got)
		}
	}
	one.Give()
	eventually(t, "the service to go", func() bool { return len(r.names()) == 0 })
	r.run(r.plan("one", a))
	if s := r.Services()[0]; s == one || s.Leaving() || s.Active() != 0 {
		t.Error("a service that has gone is back")
	}
}
