package control

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

func pointer(n int) *int { return &n }

// idlePath is a data path without connections.
type idlePath struct{}

func (idlePath) CloseBackend(*balance.Backend, l4.Outcome, time.Duration) {}
func (idlePath) Repeat(*balance.Backend)                                  {}
func (idlePath) Connections() int64                                       { return 0 }
func (idlePath) Rests(_, _ netip.AddrPort) bool                           { return false }
func (idlePath) Rest(_, _ netip.AddrPort)                                 {}
func (idlePath) Flush()                                                   {}
func (idlePath) Stalled(*balance.Backend) (stalled, established int)      { return 0, 0 }

// controlled is a Control of the pools of a configuration, and the way to another one.
// The operator's file is at path.
func controlled(t *testing.T, path, pools string) (c *Control, reload func(pools string), log *safeBuffer) {
	t.Helper()
	log = &safeBuffer{}
	c = New(slog.New(slog.NewTextHandler(log, nil)), idlePath{})
	t.Cleanup(c.Close)
	c.Load(path)
	reload = func(pools string) {
		t.Helper()
		h := c.Plan(parse(t, "services: {}\n"+pools).Pools)
		h.Discover(t.Context())
		h.Commit()()
		c.Keep(path)
	}
	reload(pools)
	return c, reload, log
}

func parse(t *testing.T, yaml string) *config.File {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// What is stuck is named, and nothing is once it is free again.
func TestWaits(t *testing.T) {
	c, _, _ := controlled(t, "", "pools: {}")
	once := func(try func() bool) bool { return try() }
	for what, lock := range map[string]*sync.Mutex{"verdicts": &c.verdicts, "commands": &c.operator.mu} {
		lock.Lock()
		if got := c.Waits(once); !strings.Contains(got, what) {
			t.Errorf("%s: %q", what, got)
		}
		lock.Unlock()
		if got := c.Waits(once); got != "" {
			t.Errorf("%s waits", got)
		}
	}
}

// A pool that is configured no longer goes by the clock, whether it is looked at or not,
// and not while a change is planned that may use it again.
func TestPruned(t *testing.T) {
	const two = "pools: {a: {backends: [\"127.0.0.1:1\"], check: {type: none}}, b: {backends: [\"127.0.0.1:1\"], check: {type: none}}}"
	const one = "pools: {a: {backends: [\"127.0.0.1:1\"], check: {type: none}}}"
	c, reload, _ := controlled(t, "", two)
	b := c.Set().Pool("b").Live
	reload(one)
	look := func(when string, pools, backends int) {
		t.Helper()
		if got := len(c.Set().All()); got != pools || len(b.Backends()) != backends {
			t.Errorf("%s: %d pools, %d backends", when, got, len(b.Backends()))
		}
	}
	now := time.Now()
	look("removed", 2, 1)
	c.prune(now)
	look("not settled", 2, 1)
	h := c.Plan(parse(t, "services: {}\n"+two).Pools)
	c.prune(now.Add(time.Hour))
	look("planned again", 2, 1)
	h.Abort()
	c.prune(now.Add(time.Hour))
	look("settled", 1, 0)
}

// A change that is planned, and may have to wait for a disk, holds up neither verdicts
// nor commands nor what is discovered.
func TestPlannedChangeHoldsUpNothing(t *testing.T) {
	const pools = "pools: {web: {backends: [{name: a, address: \"127.0.0.1:1\"}], check: {type: none}}}"
	c, _, _ := controlled(t, "", pools)
	m, err := c.Set().Find("web", "a")
	if err != nil {
		t.Fatal(err)
	}
	h := c.Plan(parse(t, "services: {}\n"+pools).Pools)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.checked(m.key, false, health.Status{})
		c.follow()
		if _, err := c.SetState("web", "a", admin.StateRequest{State: admin.OperatorDrain}); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("they wait for the change")
	}
	if f := m.Flags(); f != balance.Down|balance.Drained {
		t.Errorf("it is %s", f)
	}
	h.Commit()()
}
