package health

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/poise-lb/poise/internal/keyed"
)

// Status is what is known about one target.
type Status struct {
	Up      bool
	Standby bool      // it is not up only because it has the other role than the check wants
	Verdict bool      // a verdict was reached: Up is more than the initial state
	Since   time.Time // Up and Standby have been so since

	// Why the last probe failed. Empty when it passed, except that a target that is
	// not up keeps the latest reason until it is up. When this host could not
	// probe (ErrLocal) Detail says so and Reason is empty.
	Reason Reason
	Detail string

	At     time.Time     // start of the last probe; zero before the first
	Took   time.Duration // the last probe until it knew its answer
	Probes uint64        // ended so far

	// CertExpires is when the certificate expires that this check was shown last,
	// or one above it that it needs; zero if it was shown none.
	CertExpires time.Time

	// FailuresBy has an entry, 0 or more, for each reason that the check can give, or an
	// earlier one of the target could. It is never nil, and the caller's own copy.
	FailuresBy map[Reason]uint64
}

// Monitor keeps the verdicts on a set of targets.
type Monitor struct {
	// Set once.
	onChange func(key string, up bool, st Status)
	prober   func(Target) Prober // Spec.Prober but for tests
	rand     func() float64      // in [0, 1); safe for concurrent use
	ports    Ports

	targets keyed.Set[string, *target]
}

// Ports are the local ports that others on this host ask the same backends from over UDP:
// a datagram that is late must reach neither a check nor a client that it is not for. Its
// methods are called from many goroutines at once.
type Ports interface {
	// Rests reports whether an answer to another may still come to local.
	Rests(local, backend netip.AddrPort) bool
	// Rest keeps local from use towards backend while an answer may still come.
	Rest(local, backend netip.AddrPort)
}

// NewMonitor returns a monitor without targets. onChange is told every change of
// Status.Up and Status.Standby, in order per key. It runs on the target's goroutine, so it must not
// block long; it must not call Set or Close, nor wait for a lock that a caller of
// theirs holds, for they wait for it. It may call Status. ports may be nil.
func NewMonitor(onChange func(key string, up bool, st Status), ports Ports) *Monitor {
	return &Monitor{
		onChange: onChange,
		prober:   func(t Target) Prober { return t.Spec.Prober(t.Network, t.Address) },
		rand:     rand.Float64,
		ports:    ports,
	}
}

// Set makes these the targets that are probed, exactly these and each by one
// goroutine. A target whose Key was there before keeps its state and its counting
// goes on; a changed interval or threshold takes effect at once, a changed check
// or address keeps the verdict, forgets the streak and probes soon. When Set
// returns, onChange will not name removed targets again; a probe of one that is in
// flight is cancelled and ends by itself, because a stuck one must not hold up a
// reload. A Key that comes twice counts once, the first time. After Close, Set does
// nothing.
func (m *Monitor) Set(targets []Target) {
	keys := make([]string, len(targets))
	for i, t := range targets {
		keys[i] = t.Key
	}
	// The first probes are spread evenly over the start window.
	draw := func(i int) float64 { return (float64(i) + m.rand()) / float64(len(targets)) }
	m.targets.Replace(
		keys,
		func(i int, l *keyed.Life) *target { return newTarget(m, l, targets[i], draw(i)) },
		func(i int, t *target) { t.update(targets[i], draw(i)) },
	)
}

// ProbeNow has a target probed at once instead of at its next turn, for somebody
// who suspects it; the turns after that count from then. A probe that is under way
// will do. It does nothing for an unknown key or one that is not probed.
func (m *Monitor) ProbeNow(key string) {
	if t, ok := m.targets.Get(key); ok {
		t.hurry()
	}
}

// Status returns what is known about a target, and whether it is one.
func (m *Monitor) Status(key string) (Status, bool) {
	t, ok := m.targets.Get(key)
	if !ok {
		return Status{}, false
	}
	return t.snapshot(), true
}

// Overdue returns the key of a target whose probe has not ended, or whose verdict has
// not been taken, for longer than that after the probe's timeout; "" if there is none.
func (m *Monitor) Overdue(longer time.Duration) string {
	for key, t := range m.targets.All() {
		t.mu.Lock()
		due := t.due
		t.mu.Unlock()
		if !due.IsZero() && time.Since(due) > longer {
			return key
		}
	}
	return ""
}

// Close ends all probing and waits for it.
func (m *Monitor) Close() { m.targets.Close() }
