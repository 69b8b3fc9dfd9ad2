package balance

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/poise-lb/poise/l4"
)

// The simulation lets one pool live through minutes of virtual time with all that
// can happen to it: probes that flip, connects that fail, an outlier detector that
// ejects and lets trials through, an operator, reloads, clients that wait. Every
// seed is another life, and the same each time: POISE_TEST_SEED=n repeats one.
//
// What holds at every moment: no lease on a backend that is out while one is in,
// except in panic; each flag is what its one writer last said; leases are within
// limits; nobody waits while there is room. And at the end every counter is zero.
type simulation struct {
	t      *testing.T
	seed   uint64
	rand   *rand.Rand
	pool   *Pool
	spec   Spec
	peers  [8]peer
	held   []simulated
	queued []*client
	digest []byte
	number int
}

// peer is what is true of a backend, and what each writer of a flag has said.
type peer struct {
	broken            bool // connects fail
	down, drained     bool // monitor, operator
	ejected           bool // outlier detector
	failures          int
	returns           time.Time
	half, outstanding int // trials allowed, -1 = not half-open; trials out
}

type simulated struct {
	lease Lease
	until time.Time
	trial bool
}

func TestSimulation(t *testing.T) {
	seeds := []uint64{}
	if s := os.Getenv("POISE_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, n)
	} else {
		lives := 100
		if os.Getenv("POISE_TEST_ALL") != "" {
			lives = 400
		}
		for i := range lives {
			seeds = append(seeds, uint64(i))
		}
	}
	for _, seed := range seeds {
		if life(t, seed, 150); t.Failed() {
			t.Fatalf("repeat it with POISE_TEST_SEED=%d", seed)
		}
	}
	for _, seed := range seeds[:min(len(seeds), 20)] {
		if a, b := life(t, seed, 150), life(t, seed, 150); a != b {
			t.Errorf("seed %d: two lives, %x and %x", seed, a, b)
		}
	}
}

// life lives one life of n events and returns a digest of all choices made in it.
func life(t *testing.T, seed uint64, n int) (digest uint64) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1))}
		for i := range s.peers {
			s.peers[i].half = -1
		}
		s.spec = s.draw()
		s.pool = New(s.spec, locked(rand.NewPCG(seed, 2)))
		for range n {
			s.event()
			s.check()
		}
		s.end()
		h := fnv.New64()
		h.Write(s.digest)
		digest = h.Sum64()
	})
	return digest
}

// draw returns a configuration like the one before, or another.
func (s *simulation) draw() Spec {
	r := s.rand
	spec := Spec{Algorithm: algorithms()[r.IntN(len(algorithms()))]}
	for i := range s.peers {
		if r.IntN(4) == 0 {
			s.forget(i)
			continue
		}
		b := backendSpec(i, []int{0, 1, 100, 100, 100}[r.IntN(5)])
		b.Backup, b.MaxConnections = i > 5, r.IntN(5)
		if s.peers[i].down {
			b.Initial |= Down
		}
		if s.peers[i].ejected {
			b.Initial |= Ejected
		}
		spec.Backends = append(spec.Backends, b)
	}
	spec.SlowStart = time.Duration(r.IntN(3)) * 10 * time.Second
	spec.Panic = r.IntN(2) * 50
	spec.Queue.Size = r.IntN(2) * 5
	spec.Retry = RetryBudget{Percent: 20, Floor: 1 + r.IntN(3)}
	if r.IntN(3) == 0 {
		spec.Sticky = &Sticky{TTL: 30 * time.Second, Size: 20}
	}
	if r.IntN(3) == 0 {
		spec.AB = &AB{A: "least-conn", B: algorithms()[r.IntN(len(algorithms()))], Split: r.Float64()}
	}
	return spec
}

// forget is what everybody does about a backend that is configured no longer.
func (s *simulation) forget(i int) {
	p := &s.peers[i]
	p.drained, p.half, p.outstanding = false, -1, 0
}

func (s *simulation) event() {
	r := s.rand
	i := r.IntN(len(s.peers))
	p, id := &s.peers[i], backendSpec(i, 0).id()
	configured := slices.ContainsFunc(s.pool.Backends(), func(b *Backend) bool { return b.ID() == id })
	switch kind := r.IntN(100); {
	case kind < 60:
		s.arrive()
	case kind < 75:
		// The odd nanosecond: never at the very moment of a slow start's step, whose
		// order with what comes next would be anybody's guess.
		time.Sleep(time.Duration(r.IntN(3000))*time.Millisecond + 1)
		synctest.Wait()
	case kind < 80: // the program breaks, or is mended
		p.broken = !p.broken
	case kind < 86: // the monitor
		p.down = p.broken && r.IntN(4) > 0
		s.pool.SetFlag(id, Down, p.down)
	case kind < 92 && configured: // the operator
		if p.drained = r.IntN(2) == 0; r.IntN(2) == 0 {
			s.pool.SetWeight(id, r.IntN(3)*50-1)
		}
		s.pool.SetFlag(id, Drained, p.drained)
	case kind < 94:
		s.spec = s.draw()
		s.pool.Update(s.spec)
		for i := range s.peers { // one that was gone and is back has lost what it was told
			if s.backend(i) == nil {
				s.forget(i)
			}
		}
	case kind < 97 && len(s.queued) > 0:
		c := s.queued[r.IntN(len(s.queued))]
		if !s.pool.Cancel(&c.Waiter) {
			s.t.Errorf("a waiter is neither waiting nor granted")
		}
		s.queued = slices.DeleteFunc(s.queued, func(o *client) bool { return o == c })
	}
	now := time.Now()
	for i := range s.peers { // ejections end: half-open
		if p := &s.peers[i]; p.ejected && now.After(p.returns) {
			id := backendSpec(i, 0).id()
			if p.ejected = false; s.pool.SetTrial(id, 1) {
				p.half, p.outstanding = 1, 0
			}
			s.pool.SetFlag(id, Ejected, false)
		}
	}
	for i := 0; i < len(s.held); i++ { // flows end
		if h := &s.held[i]; now.After(h.until) {
			s.finish(h)
			s.held = slices.Delete(s.held, i, i+1)
			i--
		}
	}
}

func (s *simulation) backend(i int) *Backend {
	for _, b := range s.pool.Backends() {
		if b.Name() == backendSpec(i, 0).Name {
			return b
		}
	}
	return nil
}

// arrive is a client: it connects, retries, waits.
func (s *simulation) arrive() {
	s.number++
	f := flow(s.rand.IntN(40))
	var tried []*Backend
	for {
		var skip func(*Backend) bool
		if tried != nil {
			skip = func(b *Backend) bool { return slices.Contains(tried, b) }
		}
		lease, err := s.pool.Acquire(f, skip)
		if errors.Is(err, ErrBusy) && tried == nil {
			var ignore []int
			c := newClient(s.number, &ignore)
			grant := c.Grant
			c.Grant = func(l Lease, err error) {
				grant(l, err)
				s.queued = slices.DeleteFunc(s.queued, func(o *client) bool { return o == c })
				if err == nil {
					s.connect(l)
				}
			}
			s.queued = append(s.queued, c)
			if _, err := s.pool.Wait(&c.Waiter); err != nil {
				s.queued = slices.DeleteFunc(s.queued, func(o *client) bool { return o == c })
			}
			return
		}
		if err != nil {
			return
		}
		if s.connect(lease) || len(tried) > 2 || !s.pool.AllowRetry(l4.Failed, netip.Addr{}) {
			return
		}
		tried = append(tried, lease.Backend())
	}
}

// connect uses a lease and reports whether the backend was well.
func (s *simulation) connect(lease Lease) bool {
	b := lease.Backend()
	i := int(b.Name()[1] - '0')
	p := &s.peers[i]
	s.digest = append(s.digest, byte(i), byte(lease.strategy))
	v := s.pool.view.Load()
	switch {
	case !v.has(b):
		s.t.Errorf("%s is no member", b.Name())
	case !v.panic && b.Flags() != 0:
		s.t.Errorf("%s is %v", b.Name(), b.Flags())
	}
	h := simulated{lease: lease, trial: lease.trial != nil}
	if h.trial {
		if p.outstanding++; p.half < 0 || p.outstanding > p.half {
			s.t.Errorf("%s: %d trials out of %d", b.Name(), p.outstanding, p.half)
		}
	}
	if !p.broken {
		h.until = time.Now().Add(time.Duration(s.rand.IntN(20000)) * time.Millisecond)
		s.held = append(s.held, h)
		return true
	}
	h.lease.Report(false, 0)
	s.verdict(i, h.trial, false)
	h.lease.Release()
	return false
}

// finish ends a flow that went well.
func (s *simulation) finish(h *simulated) {
	h.lease.Report(true, time.Duration(s.rand.IntN(1e8)))
	s.verdict(int(h.lease.Backend().Name()[1]-'0'), h.trial, true)
	h.lease.Release()
}

// verdict is an outlier detector: three failures in a row, or one of a trial.
func (s *simulation) verdict(i int, trial, ok bool) {
	p, b := &s.peers[i], s.backend(i)
	if ok {
		p.failures = 0
		if trial && p.half >= 0 {
			p.half, p.outstanding = -1, 0
			s.pool.SetTrial(backendSpec(i, 0).id(), -1)
		}
		return
	}
	if p.failures++; p.ejected || b == nil || p.failures < 3 && !trial {
		return
	}
	p.ejected, p.failures, p.returns = true, 0, time.Now().Add(5*time.Second)
	s.pool.SetFlag(b.ID(), Ejected, true)
}

func (s *simulation) check() {
	var active [8]int64
	for _, h := range s.held {
		active[h.lease.Backend().Name()[1]-'0']++
	}
	room, eligible := false, 0
	v := s.pool.view.Load()
	for i := range s.peers {
		b, p := s.backend(i), &s.peers[i]
		if b == nil {
			continue
		}
		want := Flag(0)
		for f, on := range map[Flag]bool{Down: p.down, Ejected: p.ejected, Drained: p.drained} {
			if on {
				want |= f
			}
		}
		if b.Flags() != want || b.Active() != active[i] {
			s.t.Errorf("%s: %v with %d leases, want %v with %d", b.Name(), b.Flags(), b.Active(), want, active[i])
		}
		if b.Flags() == 0 && b.Weight() > 0 {
			eligible++
		}
		room = room || v.has(b) && !full(b) && !v.onTrial(b)
	}
	switch n := s.pool.Waiting(); {
	case eligible > 0 && s.pool.Eligible() == 0:
		s.t.Errorf("%d eligible, none in use", eligible)
	case n != len(s.queued):
		s.t.Errorf("%d wait, %d think so", n, len(s.queued))
	case n > 0 && (room || s.pool.Eligible() == 0):
		s.t.Errorf("%d wait for %d backends, room is %v", n, s.pool.Eligible(), room)
	}
}

func (s *simulation) end() {
	s.pool.Update(Spec{Algorithm: "random"})
	for i := range s.held {
		s.held[i].lease.Release()
	}
	if s.pool.Active() != 0 || len(s.pool.Leaving()) != 0 || s.pool.Waiting() != 0 || len(s.queued) != 0 {
		s.t.Errorf("at the end: %d active, %d leaving, %d waiting", s.pool.Active(), len(s.pool.Leaving()), s.pool.Waiting())
	}
}
