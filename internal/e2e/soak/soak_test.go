package soak

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// TestSoak runs for as long as POISE_SOAK says ("make soak" sets it): clients that
// open, half-close, reset and stall at random, backends that die, reset, say
// nothing, crawl and refuse, and a reload every second. When all is quiet again
// the process is as it was before, and every count adds up. POISE_SOAK_SEED
// repeats a run's choices, as far as timing allows.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("POISE_SOAK"))
	if err != nil {
		// Not even with POISE_TEST_ALL: it is no part of the everyday tests.
		t.Skip("POISE_SOAK is not set to a duration")
	}
	seed, err := strconv.ParseUint(os.Getenv("POISE_SOAK_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("POISE_SOAK_SEED=%d", seed)
	s := newSoak(t, seed)

	// What is made on first use, and the pools that grow with the load, are there
	// after a while; from then on nothing may grow.
	warm := max(length/5, 10*time.Second)
	s.run(t, warm)
	before := s.quiet(t)
	t.Logf("warmed up: %v", before)
	s.run(t, length)
	s.compare(t, before)
	s.reckon(t)
}

// What the soak reloads is valid: otherwise it finds that out once in many minutes, and
// only when it is run.
func TestConfigurations(t *testing.T) {
	s := newSoak(t, 1)
	for i := range soakConfigs + 1 {
		s.MustReload(t, s.config(i))
	}
}

// soak is one long run.
type soak struct {
	*rig.Proc
	seed   uint64
	rounds uint64 // runs so far: each has random numbers of its own
	access string // the access log

	abused, calm, extra, spare string // addresses of the services
	backends                   *soakBackends
	clients                    soakCounts

	mu     sync.Mutex // guards the following
	totals rig.Series // the highest value seen of every counter
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{
		seed: seed, access: filepath.Join(t.TempDir(), "access.log"),
		abused: rig.Addr(t), calm: rig.Addr(t), extra: rig.Addr(t), spare: rig.Addr(t),
		backends: newSoakBackends(t), totals: rig.Series{},
	}
	s.Proc = rig.Start(t, s.config(0))
	return s
}

// random returns random numbers for one task of the present round.
func (s *soak) random(task int) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed, s.rounds<<32|uint64(task)))
}

// run abuses the process for a while.
func (s *soak) run(t *testing.T, length time.Duration) {
	s.rounds++
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var tasks sync.WaitGroup
	const clients = 40
	for i := range clients {
		tasks.Go(func() { s.abuse(ctx, t, s.random(i)) })
	}
	tasks.Go(func() { s.backends.misbehave(ctx, t, s.random(clients)) })
	tasks.Go(func() { s.watch(ctx, t) })
	// Meanwhile others use a service whose backends are well, and notice nothing.
	tasks.Go(func() {
		res, err := loadgen.Run(ctx, loadgen.Options{Addr: s.calm, Clients: 8, Rate: 100, PerConnection: 3, Size: 1000, Timeout: rig.Patience})
		if err != nil || res.Failed != 0 {
			t.Errorf("of the calm service %d requests of %d failed: %+v, %v", res.Failed, res.Requests, res.Errors, err)
		}
		t.Logf("calm: %d requests, p99 %v, max %v", res.Requests, res.Latency.P99, res.Latency.Max)
	})
	s.reload(ctx, t, s.random(clients+1))
	tasks.Wait()
	t.Logf("abused: %v", &s.clients)
}

// reload takes another configuration every second, now and then a wrong one.
func (s *soak) reload(ctx context.Context, t *testing.T, r *rand.Rand) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		yaml := s.config(r.IntN(soakConfigs))
		wrong := r.IntN(10) == 0
		if wrong {
			yaml = strings.Replace(yaml, "balance:", "balanec:", 1)
		}
		if res := s.Reload(t, yaml); res.OK == wrong {
			t.Errorf("wrong %v, refused %v: %s\n%s", wrong, !res.OK, res.Error, yaml)
		}
	}
}

// watch looks again and again that no counter falls.
func (s *soak) watch(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		s.observe(t)
		time.Sleep(200 * time.Millisecond)
	}
}

// observe scrapes once and compares with all earlier scrapes.
func (s *soak) observe(t *testing.T) rig.Series {
	m, err := s.Scrape()
	if err != nil {
		t.Error(err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for series, v := range m {
		name, _, _ := strings.Cut(series, "{")
		counts := strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum")
		if !counts || !strings.HasPrefix(name, "poise_") {
			continue
		}
		if v < s.totals[series] {
			t.Errorf("%s fell from %v to %v", series, s.totals[series], v)
		}
		s.totals[series] = v
	}
	return m
}

// footprint is what a process takes.
type footprint struct {
	descriptors int // but for pipes
	pipes       int // ends of pipes
	goroutines  float64
	resident    int64 // bytes
}

func (s *soak) footprint(t *testing.T) footprint {
	pipes := s.Pipes(t)
	return footprint{s.Descriptors(t) - pipes, pipes, s.Metrics(t)["go_goroutines"], s.Resident(t)}
}

// quiet waits until nothing is going on, and for what the process keeps a while.
func (s *soak) quiet(t *testing.T) footprint {
	s.backends.recover(t)
	s.MustReload(t, s.config(0))
	s.eventually(t, "every connection to end", func() bool {
		m := s.observe(t)
		return m.Sum("poise_service_connections") == 0 && m.Sum("poise_backend_connections") == 0
	})
	s.eventually(t, "every backend to be up again", func() bool {
		for _, p := range s.Status(t).Pools {
			for _, b := range p.Backends {
				// One that was ejected stays half-open until a client comes to try it.
				// Of two backends nothing comes, and no check would say so.
				if b.State != "up" && b.State != "half-open" && b.Name != "refusing" && b.Name != "mute" {
					return false
				}
			}
		}
		return true
	})
	time.Sleep(3 * time.Second)
	cpu := s.CPU(t)
	time.Sleep(2 * time.Second)
	if used := s.CPU(t) - cpu; used > 500*time.Millisecond {
		t.Errorf("%v of CPU in 2 s of quiet", used)
	}
	return s.footprint(t)
}

// eventually waits for longer than elsewhere: for the longest of the timeouts,
// and for memory to be given back.
func (s *soak) eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited for %s in vain", what)
			return
		}
	}
}

// sparePipes is how many ends of pipes the workers may keep for later, each 32 pipes. How
// many they have depends on the last burst, which a short soak may not have seen before.
var sparePipes = 2 * 32 * runtime.GOMAXPROCS(0)

// compare waits for the process to be as small as it was.
func (s *soak) compare(t *testing.T, before footprint) {
	now := s.quiet(t)
	s.eventually(t, "the footprint of before", func() bool {
		now = s.footprint(t)
		return now.descriptors <= before.descriptors+3 && now.pipes <= before.pipes+sparePipes && now.goroutines <= before.goroutines+3 && now.resident <= before.resident+16<<20
	})
	t.Logf("before %+v, after %+v", before, now)
}

// reckon compares the counts with each other, with what the clients did and with
// the access log.
func (s *soak) reckon(t *testing.T) {
	// What was removed goes on counting where it was when it is there again.
	s.MustReload(t, s.config(soakConfigs))
	m := s.observe(t)
	for _, service := range []string{"abused", "calm", "extra"} {
		label := `service="` + service + `"`
		accepted, ended := m.Sum("poise_service_connections_total", label), m.Sum("poise_sessions_total", label)
		if accepted != ended || accepted == 0 {
			t.Errorf("%s: %v accepted, %v ended", service, accepted, ended)
		}
	}
	if n := m.Sum("poise_service_connections_total", `service="abused"`); n != float64(s.clients.connected.Load()) {
		t.Errorf("%v connections accepted, %d made", n, s.clients.connected.Load())
	}
	reached, served := m.Sum("poise_session_duration_seconds_count"), m.Sum("poise_backend_connections_total")
	if reached != served || reached == 0 {
		t.Errorf("%v sessions reached a backend, backends count %v", reached, served)
	}
	in, out := m.Sum("poise_service_bytes_total", `direction="in"`), m.Sum("poise_service_bytes_total", `direction="out"`)
	if bin, bout := m.Sum("poise_backend_bytes_total", `direction="in"`), m.Sum("poise_backend_bytes_total", `direction="out"`); in != bin || out != bout {
		t.Errorf("services have moved %v and %v bytes, backends %v and %v", in, out, bin, bout)
	}
	for _, series := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(series, "poise_sessions_total") && m[series] > 0 {
			t.Logf("%s %v", series, m[series])
		}
	}

	s.Stop(t) // which writes the rest of the access log
	log, err := os.ReadFile(s.access)
	if err != nil {
		t.Fatal(err)
	}
	lines := float64(bytes.Count(log, []byte("\n"))) + m.Sum("poise_accesslog_dropped_total")
	if n := m.Sum("poise_sessions_total"); lines != n {
		t.Errorf("%v lines in the access log or dropped, %v sessions", lines, n)
	}
}
