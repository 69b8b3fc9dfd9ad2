package health

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// PassiveSpec says when real traffic ejects a backend.
type PassiveSpec struct {
	Failures   int           // failed connections in a row that eject; 0 = off
	Base, Max  time.Duration // the first ejection's length, and the longest one's; Max below Base counts as Base
	MaxPercent int           // how much of the pool, without idle members, may be out at once, 0..100
	HalfOpen   int           // trials let through when an ejection is over; below 1 counts as 1
	Checked    bool          // an active check watches the members too; see Outlier.Doubted
}

// Outlier ejects backends of one pool on what real connections report.
//
// A backend is ejected, its Circuit open, after Failures failed connections in a
// row, if the share of the pool that is out then stays within MaxPercent; the only
// backend of a pool never is. Backends that can take no traffic are no part of that
// reckoning; see Idle. After Base, doubled for each repeat and capped at
// Max, it is half-open: HalfOpen connections go there as trials, and the first
// that succeeds closes the Circuit while the first that fails opens it again. It
// counts as out until then. What a client may have brought about counts for less; see
// Doubted. A trial without a result wedges nothing; see
// trialPatience. A repeat is forgotten for every time as long as the latest
// ejection that it stays in, and on return no failures are counted.
type Outlier struct {
	// Set once.
	set    func(Change)
	wake   chan struct{} // capacity 1: look at the state
	cancel context.CancelFunc
	done   sync.WaitGroup

	// Atomics, all that reports touch.
	failing   atomic.Int64 // members whose latest report was a failure, or that are half-open
	threshold atomic.Int64
	checked   atomic.Bool
	members   atomic.Pointer[map[string]*member]

	mu     sync.Mutex // guards the following
	pool   ejections
	events []Change // not yet told, in order
}

// NewOutlier returns a detector for one pool, without members. set is told each
// change, in order, on one goroutine and with no lock held; it must not call Update
// or Close, nor wait for a lock that a caller of Close holds. A change to HalfOpen
// comes again, with CauseRenewed, when the trials led to nothing.
func NewOutlier(spec PassiveSpec, set func(Change)) *Outlier {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Outlier{set: set, wake: make(chan struct{}, 1), cancel: cancel}
	o.pool.failing = &o.failing
	o.Update(spec, nil)
	o.done.Go(func() { o.run(ctx) })
	return o
}

// Update makes keys the pool's members and follows a changed spec. A member that
// stays keeps its failures, its Circuit with the time it is open, and its repeats; a
// removed one is told as closed if it was not. Ejections that a smaller pool, a
// lower MaxPercent or Failures 0 no longer allow end early.
func (o *Outlier) Update(spec PassiveSpec, keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, o.pool.update(time.Now(), spec, keys)...)
	members := o.pool.index()
	o.members.Store(&members)
	o.threshold.Store(int64(max(spec.Failures, 0)))
	o.checked.Store(spec.Checked)
	o.nudge()
}

// Connected says how a connect to a member ended. Failures of this host (no
// descriptors, no local port) must not be reported: they are no backend's fault.
//
// A success only ends a run of failed connects: a kernel accepts for a program
// that hangs or dies of each connection, and Answered tells about that.
//
// Like Answered it never blocks and allocates nothing; while no member fails, a
// success costs one atomic load. An unknown key is ignored.
func (o *Outlier) Connected(key string, ok bool) {
	if !ok {
		o.failed(key, false)
		return
	}
	if o.failing.Load() == 0 {
		return
	}
	switch m := (*o.members.Load())[key]; {
	case m == nil:
	case m.onTrial():
		if m.judge(trialReached) {
			o.nudge()
		}
	case !m.silent.Load():
		m.run.end(m.failing, 0)
	}
}

// Answered says how an established connection fared: whether the backend's first
// byte came, or it failed before that in a way no client can bring about.
func (o *Outlier) Answered(key string, ok bool) {
	if !ok {
		o.failed(key, true)
		return
	}
	if o.failing.Load() == 0 {
		return
	}
	switch m := (*o.members.Load())[key]; {
	case m == nil:
	case m.onTrial():
		if m.judge(trialPassed) {
			o.nudge()
		}
	default:
		m.end(0)
	}
}

// Doubted says that a connection failed in a way that its client may have brought
// about: by what it sent, by sending nothing, by who it is. A server that throws
// nonsense away with a reset is well, and strangers must not take it out of rotation.
//
// So where an active check watches, such failures count only together: Failures of
// them, with no answer to any client between, from several sources, of which the
// addresses of one IPv6 network of 64 bits are one. A trial that fails so decides
// nothing until several sources have met the same, and no such ejection makes the next
// one longer. Without an active check nothing else would find a backend that fails all
// its clients, and one source is enough.
//
// It never blocks for long and allocates nothing.
func (o *Outlier) Doubted(key string, client netip.Addr) {
	if !o.checked.Load() {
		o.failed(key, true)
		return
	}
	m, threshold := (*o.members.Load())[key], o.threshold.Load()
	if m == nil || threshold == 0 {
		return
	}
	n, fresh := m.doubt(client)
	switch {
	case m.onTrial():
		if m.judge(trialDoubted) {
			o.nudge()
		}
	case n >= threshold && (fresh || n%threshold == 0):
		o.nudge()
	}
}

// Recovered says that an active check has found a member well that it had found down.
// That may be all it was ejected for, and somebody has looked: its Circuit is closed
// without a trial. Should it fail again, the next ejection is longer all the same. An
// unknown key is ignored.
func (o *Outlier) Recovered(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := (*o.members.Load())[key]
	switch {
	case m == nil:
		return
	case m.state == Closed:
		m.end(0)
		return
	}
	o.events = append(o.events, o.pool.close(m, time.Now(), CauseCheckPassed, "its check has passed again"))
	o.nudge()
}

// Idle says whether a member can take no traffic, whatever real connections show: the
// operator has taken it out, a check has found it down or in the other role. Such a
// member is not ejected, and the others are reckoned without it, or the last one that
// serves could be ejected for the company of those that do not. An ejection that this
// no longer allows ends early. An unknown key is ignored; a new member is not idle.
func (o *Outlier) Idle(key string, idle bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m := (*o.members.Load())[key]; m != nil {
		o.events = append(o.events, o.pool.setIdle(m, time.Now(), idle)...)
		o.nudge()
	}
}

// failed counts a failure, before or after the connect.
func (o *Outlier) failed(key string, silent bool) {
	m, threshold := (*o.members.Load())[key], o.threshold.Load()
	if m == nil || threshold == 0 {
		return
	}
	if m.onTrial() {
		if m.judge(trialFailed) {
			o.nudge()
		}
		return
	}
	if silent {
		m.silent.Store(true)
	}
	// Every multiple, for a member that could not be ejected the first time.
	if n := m.fail(); n > 0 && n%threshold == 0 {
		o.nudge()
	}
}

// Ejection is what is known about one member.
type Ejection struct {
	State Circuit
	Until time.Time // when it is half-open; zero when it is not open
	Why   string    // "" when it is closed
	Total uint64    // ejections so far
}

// Status returns what is known about a member, and whether it is one.
func (o *Outlier) Status(key string) (Ejection, bool) {
	m := (*o.members.Load())[key]
	if m == nil {
		return Ejection{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := Ejection{State: m.state, Why: m.why, Total: m.total}
	if m.state == Open {
		e.Until = m.until
	}
	return e, true
}

// Close closes every Circuit, telling each, and waits for set. After it reports do
// nothing, and Update must not be called.
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

// run steps the state machine when something was reported or a time is up, and is the only caller of set. Ejecting means rebuilding a picker, which no data
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
		o.set(e)
	}
	return next
}
