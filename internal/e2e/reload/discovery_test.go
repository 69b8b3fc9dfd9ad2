package reload

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// nameServer is a DNS server whose answers the test decides.
type nameServer struct {
	addr string
	stop func()

	mu     sync.Mutex // guards the following
	answer func(q *dns.Msg) *dns.Msg
	asked  int
}

// newNameServer starts a server on addr, silent at first.
func newNameServer(t *testing.T, addr string) *nameServer {
	t.Helper()
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{addr: pc.LocalAddr().String()}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.mu.Lock()
		answer := s.answer
		s.asked++
		s.mu.Unlock()
		if answer == nil {
			return
		}
		if m := answer(q); m != nil {
			_ = w.WriteMsg(m)
		}
	})}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ActivateAndServe() })
	<-started
	s.stop = sync.OnceFunc(func() {
		_ = server.Shutdown()
		running.Wait()
	})
	t.Cleanup(s.stop)
	return s
}

func (s *nameServer) answers(f func(q *dns.Msg) *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *nameServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// says answers for A with these addresses and a TTL of a second, for anything
// else with no records.
func says(addrs ...string) func(q *dns.Msg) *dns.Msg {
	return func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			for _, a := range addrs {
				m.Answer = append(m.Answer, &dns.A{
					Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1},
					A:   net.ParseIP(a),
				})
			}
		}
		return m
	}
}

func fails(rcode int) func(q *dns.Msg) *dns.Msg {
	return func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, rcode) }
}

// twins starts two backends with one port on two addresses of loopback.
func twins(t *testing.T) (db11, db12 *loadgen.Backend, port string) {
	t.Helper()
	for try := 0; ; try++ {
		db11, err := loadgen.NewBackend("db11", "127.0.0.11:0", loadgen.Behaviour{})
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(fmt.Sprint(db11.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		db12, err := loadgen.NewBackend("db12", "127.0.0.12:"+port, loadgen.Behaviour{})
		if err == nil {
			t.Cleanup(db11.Close)
			t.Cleanup(db12.Close)
			return db11, db12, port
		}
		db11.Close()
		if try == 20 {
			t.Fatal(err)
		}
	}
}

// sourceOf returns what is said about the only source of the pool web.
func sourceOf(t *testing.T, p *rig.Proc) admin.Source {
	t.Helper()
	for _, pl := range p.Status(t).Pools {
		if pl.Name == "web" && len(pl.Sources) == 1 {
			return pl.Sources[0]
		}
	}
	t.Fatal("there is no source of web's backends")
	return admin.Source{}
}

// Case O-14: trouble with name servers does not empty a pool.
func TestDNSTrouble(t *testing.T) {
	_, _, port := twins(t)
	ns := newNameServer(t, "127.0.0.1:0")
	listen := rig.Addr(t)
	yaml := func(hold string) string {
		return rig.WebConfig(listen, "", fmt.Sprintf("balance: round-robin, resolve: {servers: [%q], hold: %s}", ns.addr, hold), "db.internal:"+port)
	}

	// No name server answers: it starts all the same, and says why it has no backend.
	p := rig.Start(t, yaml("10m"))
	if s := sourceOf(t, p); s.State != "unresolved" {
		t.Errorf("at first: %+v", s)
	}
	if who, err := rig.Ask(listen); err == nil {
		t.Errorf("%s answered, which is not configured", who)
	}
	rig.Eventually(t, "the reason", func() bool { return strings.Contains(sourceOf(t, p).Reason, "no answer within 1s") })

	ns.answers(says("127.0.0.11"))
	rig.Eventually(t, "the first address", func() bool {
		who, err := rig.Ask(listen)
		return err == nil && who == "db11"
	})
	long := rig.Dial(t, listen)
	long.MustAsk(t)

	// From here on clients come all the time, and none may fail.
	var phase atomic.Value
	phase.Store("answer")
	clients := rig.Repeat(t, 1, 50*time.Millisecond, func() error {
		during := phase.Load()
		if _, err := rig.Ask(listen); err != nil {
			return fmt.Errorf("%s: %w", during, err)
		}
		return nil
	})
	for _, ph := range []struct {
		name   string
		answer func(q *dns.Msg) *dns.Msg
		state  string
	}{
		{"silence", nil, "stale"},
		{"SERVFAIL", fails(dns.RcodeServerFailure), "stale"},
		{"REFUSED", fails(dns.RcodeRefused), "stale"},
		{"NXDOMAIN", fails(dns.RcodeNameError), "held"},
		{"no records", says(), "held"},
	} {
		phase.Store(ph.name)
		ns.answers(ph.answer)
		asked := ns.count()
		rig.Eventually(t, ph.name+" to be noticed", func() bool { return ns.count() >= asked+4 && sourceOf(t, p).State == ph.state })
		if who, err := rig.Ask(listen); err != nil || who != "db11" {
			t.Errorf("%s: %s answered, %v", ph.name, who, err)
		}
		if b := p.Backend(t, "web", "db.internal/127.0.0.11:"+port); b.State != "up" {
			t.Errorf("%s: backend %+v", ph.name, b)
		}
	}

	phase.Store("another address")
	ns.answers(says("127.0.0.12"))
	asked := ns.count()
	rig.Eventually(t, "the new address", func() bool {
		who, err := rig.Ask(listen)
		return err == nil && who == "db12"
	})
	if n := ns.count() - asked; n > 20 { // two questions a second or so
		t.Errorf("a TTL of a second was followed after %d questions", n)
	}
	for range 5 {
		if who, err := rig.Ask(listen); err != nil || who != "db12" {
			t.Errorf("%s answered, %v", who, err)
		}
	}

	phase.Store("the name server is gone")
	ns.stop()
	rig.Eventually(t, "that to be noticed", func() bool { return strings.Contains(sourceOf(t, p).Reason, "connection refused") })
	ns = newNameServer(t, ns.addr)
	phase.Store("both addresses")
	ns.answers(says("127.0.0.12", "127.0.0.11"))
	rig.Eventually(t, "both addresses", func() bool { return sourceOf(t, p).Backends == 2 && len(p.Status(t).Pools[0].Backends) >= 2 })
	served := map[string]bool{}
	rig.Eventually(t, "both to serve", func() bool {
		who, err := rig.Ask(listen)
		served[who] = err == nil
		return served["db11"] && served["db12"]
	})
	t.Logf("%d clients", clients.Stop())

	// The name has gone for good: so do the backends, and the log says so.
	ns.answers(fails(dns.RcodeNameError))
	changes := p.MustReload(t, yaml("0s"))
	if len(changes) != 1 || changes[0] != "pool web: resolve.hold 10m0s -> 0s" {
		t.Errorf("changes %q", changes)
	}
	rig.Eventually(t, "the backends to go", func() bool {
		_, err := rig.Ask(listen)
		return err != nil && sourceOf(t, p).State == "unresolved"
	})
	for _, line := range []string{"name is resolved", "name cannot be resolved, its backends stay", "for the hold time", "name leads to no address", "backend is added", "backend is removed"} {
		if !strings.Contains(p.Stderr(), line) {
			t.Errorf("the log does not say %q", line)
		}
	}
	if who := long.MustAsk(t); who != "db11" {
		t.Errorf("the long connection is with %s", who)
	}
}

// TestDNSQuick: a name that is looked up at once leaves no moment without
// backends, and a reload keeps what was found.
func TestDNSQuick(t *testing.T) {
	_, _, port := twins(t)
	ns := newNameServer(t, "127.0.0.1:0")
	ns.answers(says("127.0.0.11"))
	listen := rig.Addr(t)
	yaml := func(more string) string {
		return rig.WebConfig(listen, "", fmt.Sprintf("resolve: {servers: [%q]}%s", ns.addr, more), "db.internal:"+port)
	}
	p := rig.Start(t, yaml(""))
	c := rig.Dial(t, listen)
	c.MustAsk(t)
	ns.answers(nil)
	for i, more := range []string{", balance: p2c", ", max_connections: 7", ""} {
		p.MustReload(t, yaml(more))
		if who, err := rig.Ask(listen); err != nil || who != "db11" {
			t.Fatalf("after reload %d: %s, %v", i, who, err)
		}
	}
	b := p.Backend(t, "web", "db.internal/127.0.0.11:"+port)
	if b.Total != 4 || b.Connections < 1 {
		t.Errorf("the backend does not count on: %+v", b)
	}
	c.MustAsk(t)
}

// TestBackendsFile: a watched file is followed without a reload.
func TestBackendsFile(t *testing.T) {
	db1, db2 := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Backend(t, "db2", loadgen.Behaviour{})
	listen := rig.Addr(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "web.list")
	replace := func(content string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(by string) {
		t.Helper()
		rig.Eventually(t, by+" to answer", func() bool {
			who, err := rig.Ask(listen)
			return err == nil && who == by
		})
	}
	p := rig.Start(t, fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n  web: {backends_file: %s}\n", listen, file))
	if s := sourceOf(t, p); s.State != "unresolved" || !strings.Contains(s.Reason, "no such file") {
		t.Errorf("without a file: %+v", s)
	}
	replace(fmt.Sprintf("# by hand\n%s name=db1\n", db1.Addr()))
	answered("db1")
	held := rig.Dial(t, listen)
	held.MustAsk(t)

	replace(fmt.Sprintf(`[{"name": "db2", "address": %q}]`, db2.Addr()))
	answered("db2")
	rig.Eventually(t, "only the held connection to be left", func() bool {
		b := p.Backend(t, "web", "db1")
		return b.State == "removed" && b.Connections == 1
	})

	for _, bad := range []string{"", "10.0.0.1\n", "[10.0.0.1:80,", "db.internal:80\n"} {
		replace(bad)
		rig.Eventually(t, fmt.Sprintf("%q to be refused", bad), func() bool { return sourceOf(t, p).State == "stale" })
		if who, err := rig.Ask(listen); err != nil || who != "db2" {
			t.Errorf("with %q: %s, %v", bad, who, err)
		}
		replace(fmt.Sprintf("%s name=db2\n", db2.Addr()))
		rig.Eventually(t, "the file to be good again", func() bool { return sourceOf(t, p).State == "read" })
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the file to be missed", func() bool { return sourceOf(t, p).State == "stale" })
	answered("db2")
	out, _, _ := rig.CLI(t, "status", "--socket", p.Socket())
	if !strings.Contains(out, "from "+file+": stale for") {
		t.Errorf("poise status:\n%s", out)
	}
	held.MustAsk(t)
}
