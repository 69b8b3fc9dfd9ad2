package control

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/l4/balance"
)

// operator is what the operator has said about backends at run time. It outlives
// reloads and, in a file, the process.
type operator struct {
	// Set once.
	log   *slog.Logger
	dirty chan struct{} // capacity 1: there is something to write
	write func(path string, content stateFile) error

	saving chan struct{} // full while the file is written, which guards the following

	mayReplace string // a path where nothing is that was not read
	unread     string // a path where something is that was not

	mu      sync.Mutex // guards the following
	path    string     // of the file; "" = there is none
	held    map[string]Order
	unsaved bool // the file does not say what held does
}

// An Order is what the operator has said about one backend, known by pool and address as all verdicts
// are: a renamed backend is the same server.
type Order struct {
	Pool    string    `json:"pool"`
	Backend string    `json:"backend"` // as it was called, for whoever reads the file
	Address string    `json:"address"`
	State   string    `json:"state,omitempty"` // drain | maint | "" = ready
	Since   time.Time `json:"since,omitzero"`  // of State
	Weight  *int      `json:"weight,omitempty"`
	// FileWeight is the configured weight at the time that Weight was given. If
	// the configuration says something else now, somebody has edited it since, and
	// that counts.
	FileWeight int `json:"file_weight,omitempty"`

	away time.Time // not among the backends of its pool since; zero = it is
}

// absence is how long it is remembered what holds for a backend that came from a
// name or a file and is not found there any more: after a restart it may take a
// while until it is found again. Who is taken out of the configuration itself is
// forgotten at once.
const absence = 10 * time.Minute

func newOperator(log *slog.Logger) *operator {
	return &operator{
		log: log, dirty: make(chan struct{}, 1), write: writeState,
		saving: make(chan struct{}, 1), held: map[string]Order{},
	}
}

// flags are those of the operator that are due.
func (h Order) flags() balance.Flag {
	switch h.State {
	case admin.OperatorDrain:
		return balance.Drained
	case admin.OperatorMaint:
		return balance.Maint
	}
	return 0
}

func (h Order) nothing() bool { return h.State == "" && h.Weight == nil }

// valid tells why h cannot be what was written.
func (h Order) valid() error {
	switch {
	case h.Pool == "" || h.Address == "":
		return errors.New("an entry without pool or address")
	case h.State != "" && h.flags() == 0:
		return fmt.Errorf("%s/%s: no state %q", h.Pool, h.Backend, h.State)
	case h.Weight != nil && (*h.Weight < 0 || *h.Weight > 65535):
		return fmt.Errorf("%s/%s: no weight %d", h.Pool, h.Backend, *h.Weight)
	}
	return nil
}

// due returns what holds for a backend.
func (o *operator) due(key string) Order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held[key]
}

// set makes h what holds under key.
func (o *operator) set(key string, h Order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setLocked(key, h)
}

func (o *operator) setLocked(key string, h Order) {
	if h.nothing() {
		delete(o.held, key)
	} else {
		o.held[key] = h
	}
	o.changedLocked()
}

// changedLocked has the file written soon, unless somebody does so before.
func (o *operator) changedLocked() {
	o.unsaved = true
	select {
	case o.dirty <- struct{}{}:
	default:
	}
}

// reconcile lets go of what no longer holds for a pool that has become what spec
// says: weights that have been edited since, and backends that have gone. Those of
// a pool that is discovered may come back.
func (o *operator) reconcile(spec balance.Spec, discovered bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	configured := make(map[string]balance.BackendSpec, len(spec.Backends))
	for _, b := range spec.Backends {
		configured[memberKey(spec.Name, b.Addr)] = b
	}
	for key, h := range o.held {
		if h.Pool != spec.Name {
			continue
		}
		b, here := configured[key]
		switch {
		case here:
			h.away = time.Time{}
			o.held[key] = h
			if h.Weight != nil && h.FileWeight != b.Weight {
				o.log.Info("backend weight is the configured one again, which has been edited", "pool", h.Pool, "backend", b.Name,
					"address", h.Address, "by", "configuration", "weight", b.Weight, "was", *h.Weight, "was_configured", h.FileWeight)
				h.Weight, h.FileWeight = nil, 0
				o.setLocked(key, h)
			}
		case discovered && h.away.IsZero():
			h.away = now
			o.held[key] = h
		case !discovered || now.Sub(h.away) >= absence:
			o.forgetLocked(key)
		}
	}
}

// forget lets go of the backends of all pools but those named.
func (o *operator) forget(pools []*Pool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, h := range o.held {
		if !slices.ContainsFunc(pools, func(p *Pool) bool { return p.Balance.Name == h.Pool }) {
			o.forgetLocked(key)
		}
	}
}

func (o *operator) forgetLocked(key string) {
	h := o.held[key]
	o.log.Info("what the operator said about a backend is forgotten, for it is not configured any more", "pool", h.Pool,
		"backend", h.Backend, "address", h.Address, "by", "configuration", "state", h.Word())
	delete(o.held, key)
	o.changedLocked()
}

// Word is the state as the operator writes it.
func (h Order) Word() string {
	if h.State == "" {
		return admin.OperatorReady
	}
	return h.State
}
