package health

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// PassiveSpec says when real traffic ejects a backend.
type PassiveSpec struct {
	Failures   int           // failed connects in a row that eject; 0 = off
	Base, Max  time.Duration // the first ejection's length, and the longest one's; Max below Base counts as Base
	MaxPercent int           // how much of the pool may be ejected at once, 0..100
}

// Outlier ejects backends of one pool on what real connections report.
//
// A backend is ejected after Failures failed connects in a row, if the share of
// the pool that is ejected then stays within MaxPercent; the only backend of a
// pool never is. It returns after Base, doubled for each repeat and capped at Max;
// a repeat is forgotten for every time as long as the latest ejection that it
// stays in. On return it starts with no failures counted.
type Outlier struct {
	// Set once.
	set    func(key string, ejected bool, why string)
	wake   chan struct{} // capacity 1: look at the state
	cancel context.CancelFunc
	done   sync.WaitGroup

	// Atomics, all that Report touches.
	failing   atomic.Int64 // members whose latest report was a failure
	threshold atomic.Int64
	members   atomic.Pointer[map[string]*member]

	mu     sync.Mutex // guards the following
	pool   ejections
	events []event // not yet told, in order
}

// NewOutlier returns a detector for one pool, without members. set is told each
// ejection and each return, in order, on one goroutine and with no lock held; it
// must not call Update or Close, nor wait for a lock that a caller of Close holds.
func NewOutlier(spec PassiveSpec, set func(key string, ejected bool, why string)) *Outlier {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Outlier{set: set, wake: make(chan struct{}, 1), cancel: cancel}
	o.pool.failing = &o.failing
	o.Update(spec, nil)
	o.done.Go(func() { o.run(ctx) })
	return o
}

// Update makes keys the pool's members and follows a changed spec. A member that
// stays keeps its failures, its ejection with the time it ends, and its repeats; a
// removed one is told as returned if it was ejected. Ejections that a smaller
// pool, a lower MaxPercent or Failures 0 no longer allow end early.
func (o *Outlier) Update(spec PassiveSpec, keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, o.pool.update(time.Now(), spec, keys)...)
	members := o.pool.index()
	o.members.Store(&members)
	o.threshold.Store(int64(max(spec.Failures, 0)))
	o.nudge()
}

// Report says how a connect to a member went. It never blocks and allocates
// nothing; while no member fails, a success costs one atomic load. Failures of
// this host (no descriptors, no local port) must not be reported: they are no
// backend's fault. An unknown key is ignored.
func (o *Outlier) Report(key string, ok bool) {
	if ok && o.failing.Load() == 0 {
		return
	}
	m := (*o.members.Load())[key]
	if m == nil {
		return
	}
	if ok {
		m.end(0)
		return
	}
	threshold := o.threshold.Load()
	if threshold == 0 {
		return
	}
	// Every multiple, for a member that could not be ejected the first time.
	if n := m.failed(); n > 0 && n%threshold == 0 {
		o.nudge()
	}
}

// Ejection is what is known about one member.
type Ejection struct {
	Ejected bool
	Until   time.Time // when it returns; zero when it is not ejected
	Why     string    // "" when it is not ejected
	Total   uint64    // ejections so far
}

// Status returns what is known about a member, and whether it is one.
func (o *Outlier) Status(key string) (Ejection, bool) {
	m := (*o.members.Load())[key]
	if m == nil {
		return Ejection{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := Ejection{Ejected: m.ejected, Why: m.why, Total: m.total}
	if m.ejected {
		e.Until = m.until
	}
	return e, true
}

// Close ends all ejections, telling each as a return, and waits for set. After it
// Report does nothing, and Update must not be called.
func (o *Outlier) Close() {
	o.Update(PassiveSpec{}, nil)
	o.cancel()
	o.done.Wait()
}

// nudge wakes run without waiting for it.
func (o *Outlier) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run steps the state machine when something was reported or an ejection ends,
// and is the only caller of set. Ejecting means rebuilding a picker, which no data
// loop has the time for; hence a goroutine.
func (o *Outlier) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if next := o.act(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			o.act() // what Close's Update has to tell
			return
		case <-o.wake:
		case <-timer.C:
		}
	}
}

// act steps the state machine, tells what came of it, and returns when to act
// again, zero if nobody is out.
func (o *Outlier) act() (next time.Time) {
	o.mu.Lock()
	stepped, next := o.pool.step(time.Now())
	events := append(o.events, stepped...)
	o.events = nil
	o.mu.Unlock()
	for _, e := range events {
		o.set(e.key, e.ejected, e.why)
	}
	return next
}
