package resolve

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// changes collects what a resolver tells.
type changes struct {
	mu   sync.Mutex
	list []string
}

func (c *changes) add(_ Key, st Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := record{Status: st}
	c.list = append(c.list, r.show())
}

func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.list, ", ")
}

// fake is a resolver whose lookups are answered by the test.
type fake struct {
	*Resolver
	told changes

	mu     sync.Mutex
	answer func(Target) answer
	asked  []time.Time
}

func newFake(does func(Target) answer) *fake {
	f := &fake{answer: does}
	f.Resolver = &Resolver{
		onChange: f.told.add,
		rand:     func() float64 { return 0 },
		lookup: func(_ context.Context, t Target) answer {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.asked = append(f.asked, time.Now())
			return f.answer(t)
		},
	}
	return f
}

func (f *fake) answers(a func(Target) answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = a
}

func always(a answer) func(Target) answer { return func(Target) answer { return a } }

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func target(name string, servers ...string) Target {
	t := Target{Key: Key{Owner: "pg", Name: name}, Limits: limits}
	for _, s := range servers {
		t.Servers = append(t.Servers, netip.MustParseAddrPort(s))
	}
	return t
}

// TestRefresh: a name is asked for again when its answer has expired, within the
// limits.
func TestRefresh(t *testing.T) {
	for ttl, want := range map[time.Duration]int{0: 61, 10 * time.Second: 7, time.Hour: 1, 59 * time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(always(found(ttl, "10.0.0.1")))
			defer f.Close()
			f.Set([]Target{target("db")})
			time.Sleep(60*time.Second + time.Millisecond)
			if got := f.count(); got != want {
				t.Errorf("TTL %s: asked %d times in a minute, want %d", ttl, got, want)
			}
		})
	}
}

// TestOutage goes through a day without name servers, and what comes after.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(always(found(30*time.Second, "10.0.0.1")))
		defer f.Close()
		f.Set([]Target{target("db")})
		time.Sleep(time.Minute)
		f.answers(always(trouble))
		time.Sleep(24 * time.Hour)
		f.answers(always(found(30*time.Second, "10.0.0.2")))
		time.Sleep(5 * time.Second)
		f.answers(always(none))
		time.Sleep(limits.Hold + 20*time.Second)
		before := f.told.String()
		time.Sleep(15 * time.Second)
		want := "resolved [10.0.0.1], stale [10.0.0.1] SERVFAIL, resolved [10.0.0.2], held [10.0.0.2] NXDOMAIN"
		if before != want {
			t.Errorf("told %s\nwant %s", before, want)
		}
		if got := f.told.String(); got != want+", unresolved [] NXDOMAIN" {
			t.Errorf("told %s", got)
		}
		if st, _ := f.Status(target("db").Key); st.Failures < 86400/6 || st.Lookups < st.Failures+2 {
			t.Errorf("counted %d failures of %d lookups", st.Failures, st.Lookups)
		}
	})
}

// TestSet: names keep their state as long as they stay, and nobody is told of one
// that is gone.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(t Target) answer {
			if len(t.Servers) > 0 {
				return found(time.Minute, t.Servers[0].Addr().String())
			}
			return found(time.Minute, "10.0.0.1")
		})
		defer f.Close()
		db, web := target("db"), target("web")
		f.Set([]Target{db, web, db})
		f.Settle(t.Context())
		if n := f.count(); n != 2 {
			t.Fatalf("asked %d times", n)
		}
		f.Set([]Target{web, db})
		synctest.Wait()
		if n := f.count(); n != 2 {
			t.Fatalf("a Set of the same names asked again: %d", n)
		}
		if _, ok := f.Status(Key{Owner: "other", Name: "db"}); ok {
			t.Error("a name nobody set")
		}

		// Other servers: asked at once, and the members stay until they answer.
		gate := make(chan struct{})
		f.lookup = func(ctx context.Context, t Target) answer {
			select {
			case <-gate:
				return f.answer(t)
			case <-ctx.Done():
				return failed(ctx.Err())
			}
		}
		f.Set([]Target{target("db", "10.0.0.8:53")})
		synctest.Wait()
		if st, ok := f.Status(db.Key); !ok || !slices.Equal(st.Members, members("10.0.0.1")) {
			t.Errorf("meanwhile: %+v", st)
		}
		f.Set([]Target{target("db", "10.0.0.9:53")}) // a lookup in flight is given up
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if st, _ := f.Status(db.Key); !slices.Equal(st.Members, members("10.0.0.9")) || st.State != Resolved {
			t.Errorf("in the end: %+v", st)
		}
		if _, ok := f.Status(web.Key); ok {
			t.Error("a removed name has a status")
		}
		f.Close()
		f.Set([]Target{db})
		if _, ok := f.Status(db.Key); ok {
			t.Error("a closed resolver has a name")
		}
	})
}

// TestSettle: it waits for the first lookup, and no longer than it may.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		f.lookup = func(ctx context.Context, _ Target) answer {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return trouble
		}
		defer f.Close()
		f.Set([]Target{target("db"), target("web")})
		for _, tt := range []struct{ limit, want time.Duration }{{300 * time.Millisecond, 300 * time.Millisecond}, {time.Minute, 700 * time.Millisecond}, {time.Minute, 0}} {
			ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
			start := time.Now()
			f.Settle(ctx)
			if took := time.Since(start); took != tt.want {
				t.Errorf("took %s, want %s", took, tt.want)
			}
			cancel()
		}
	})
}

// TestSetAtRandom: whatever is set while answers come in, what was set last is
// what is watched.
func TestSetAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := newServer(t, "127.0.0.1:0", func(_ string, q *dns.Msg) *dns.Msg {
		return says(q.Question[0].Name+" 0 A 10.0.0.1")("", q)
	})
	var told changes
	r := New(told.add)
	defer r.Close()
	for range 200 {
		var want []Target
		for i := range rnd.IntN(5) {
			tgt := target(fmt.Sprintf("db%d", (i+rnd.IntN(2))%5), s.addr.String())
			tgt.MaxTTL = time.Duration(rnd.IntN(3)+1) * time.Minute
			want = append(want, tgt)
		}
		r.Set(want)
		for _, w := range want {
			if _, ok := r.Status(w.Key); !ok {
				t.Fatalf("%v is not watched", w.Key)
			}
		}
	}
	r.Set([]Target{target("db0", s.addr.String())})
	r.Settle(t.Context())
	if st, _ := r.Status(target("db0").Key); st.State != Resolved {
		t.Errorf("got %+v", st)
	}
}

// TestTrouble is case O-14 for the resolver: what a name leads to through the
// phases of a name server's troubles.
func TestTrouble(t *testing.T) {
	first := says("db.internal. 1 A 127.0.0.11")
	s := newServer(t, "127.0.0.1:0", silent)
	var told changes
	r := New(told.add)
	defer r.Close()
	db := target("db.internal", s.addr.String())
	db.Limits = Limits{MinTTL: 20 * time.Millisecond, MaxTTL: 20 * time.Millisecond, Hold: time.Hour}
	r.Set([]Target{db})

	status := func() Status {
		st, ok := r.Status(db.Key)
		if !ok {
			t.Fatal("the name is not watched")
		}
		return st
	}
	phase := func(name string, does script, state State, detail string, addrs ...string) {
		t.Helper()
		s.does(does)
		before := status()
		eventually(t, name, func() bool {
			st := status()
			if want := members(addrs...); !slices.Equal(st.Members, want) && !slices.Equal(st.Members, before.Members) {
				t.Fatalf("%s: members %v", name, st.Members)
			}
			return st.State == state && strings.Contains(st.Detail, detail) && slices.Equal(st.Members, members(addrs...))
		})
		// And so it stays.
		eventually(t, name+" to go on", func() bool {
			st := status()
			if st.State != state || !slices.Equal(st.Members, members(addrs...)) {
				t.Fatalf("%s: it became %s %v", name, st.State, st.Members)
			}
			return st.Lookups >= before.Lookups+2
		})
	}
	phase("nobody from the start", silent, Unresolved, "no answer within 1s")
	phase("an answer", first, Resolved, "", "127.0.0.11")
	phase("silence", silent, Stale, "no answer within 1s", "127.0.0.11")
	phase("SERVFAIL", fails(dns.RcodeServerFailure), Stale, "SERVFAIL", "127.0.0.11")
	phase("REFUSED", fails(dns.RcodeRefused), Stale, "REFUSED", "127.0.0.11")
	phase("NXDOMAIN", fails(dns.RcodeNameError), Held, "NXDOMAIN", "127.0.0.11")
	phase("no records", empty, Held, "no records", "127.0.0.11")
	phase("another address", says("db.internal. 1 A 127.0.0.12"), Resolved, "", "127.0.0.12")
	phase("both", says("db.internal. 1 A 127.0.0.12", "db.internal. 1 A 127.0.0.11"), Resolved, "", "127.0.0.11", "127.0.0.12")

	s.stop()
	eventually(t, "the end of the server to be noticed", func() bool { return status().State == Stale })
	if st := status(); !strings.Contains(st.Detail, "connection refused") || len(st.Members) != 2 {
		t.Errorf("got %+v", st)
	}
	s = newServer(t, s.addr.String(), first)
	eventually(t, "the new server to be used", func() bool { return slices.Equal(status().Members, members("127.0.0.11")) })

	db.Hold = 0
	s.does(fails(dns.RcodeNameError))
	r.Set([]Target{db})
	eventually(t, "the member to go without a hold time", func() bool { return status().State == Unresolved })
}
