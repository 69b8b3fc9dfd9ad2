// Package metrics is the one Prometheus collector of the process. Domain
// packages keep plain atomics; this one reads them when it is scraped, and every
// metric name is in names.go.
//
//	http.Handle("/metrics", metrics.Handler(source, version, slog.Default()))
//
// What it promises beyond reading: no two series of a scrape have the same name
// and labels, a counter never falls while the process runs, though the object
// behind it is removed and added again, and the series of a removed object go
// when its last connection has gone.
package metrics

import (
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// A StateChange is a kind of change of a backend's state: who made it, and why.
type StateChange struct{ Author, Reason string }

// Authors of a StateChange: the active check, the passive one, the operator, the
// resolver or a file of backends.
var Authors = []string{"active", "passive", "operator", "resolver"}

// StateReasons are the reasons of a StateChange besides those of checks that fail
// (health.Reasons): a check that passes again, what passive checks do
// (health.Cause), the operator's words, and what the resolver finds.
var StateReasons = []string{
	"passed",
	string(health.CauseFailures), string(health.CauseTimeOver), string(health.CauseTrialFailed),
	string(health.CauseTrialPassed), string(health.CauseCheckPassed), string(health.CauseNotAllowed),
	"drain", "maint", "ready", "weight",
	"added", "removed",
}

// A Certificate is one that a service ends its clients' TLS with.
type Certificate struct {
	Service string
	Path    string // of its file, as configured
	Expires time.Time
}

// A Source is where the numbers are; the daemon implements it. Every method is
// called at each scrape, by one goroutine at a time.
type Source interface {
	// Services returns the configured TCP services and the removed ones that still
	// have connections, their byte counters up to date (tcp.Server.Flush). It is
	// called before all others. A service once left out does not come back; one
	// of the same name may.
	Services() []*tcp.Service
	// UDPServices returns the same of UDP services (udp.Server.Flush). It is called
	// next.
	UDPServices() []*udp.Service
	// Pools returns the configured pools and the removed ones that still have
	// connections. A pool once left out does not come back; one of the same name
	// may.
	Pools() []*balance.Pool
	// CheckStatus returns what the active check of b says; false if b has none.
	CheckStatus(b *balance.Backend) (health.Status, bool)
	// Ejections returns how often passive checks have ejected b, not counting
	// others of its name; 0 if b has none. It may start anew after b was removed.
	Ejections(b *balance.Backend) uint64
	// StateChanges counts how often the state of b has changed, by author and
	// reason; both are words of Authors and StateReasons. It may start anew after b
	// was removed. The map is the caller's.
	StateChanges(b *balance.Backend) map[StateChange]uint64
	// LastReload returns when the configuration was last read, at the start or at
	// a reload, and whether it was taken.
	LastReload() (at time.Time, ok bool)
	// AcceptErrors counts failed accepts by reason, a closed vocabulary.
	AcceptErrors() map[string]uint64
	// LoopBusy returns, for every event loop, the time it has spent at work and
	// the time it exists.
	LoopBusy() (busy, total []time.Duration)
	// Certificates lists what TLS services show their clients, those of the running
	// configuration only.
	Certificates() []Certificate
	// LogDropped counts messages that were lost.
	LogDropped() uint64
	// BrokenCertificates counts files that cannot be used as they are now.
	BrokenCertificates() int
	// AccessLogDropped counts access log lines that were lost.
	AccessLogDropped() uint64
}
