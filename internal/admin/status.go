package admin

import (
	"context"
	"time"
)

// A Daemon is what the endpoints speak for. Its methods are called from many
// goroutines at once.
type Daemon interface {
	// Status describes everything that runs, from one moment as far as possible.
	Status() Status
	// Reload reads the configuration anew and applies all of it or nothing.
	Reload(ctx context.Context) ReloadResult
	// Ready returns nil while new connections should be sent to this process,
	// else why not.
	Ready() error
	// Live returns nil while the process does its work, else what hangs.
	Live() error
}

// Status is the answer to GET /v1/status. Totals count since the process began.
type Status struct {
	Version     string     `json:"version"`
	PID         int        `json:"pid"`
	Started     time.Time  `json:"started"`
	Now         time.Time  `json:"now"`   // when this was taken; the server fills it in if zero
	State       string     `json:"state"` // running | stopping
	Config      string     `json:"config"`
	LastReload  ReloadInfo `json:"last_reload"`
	Connections int64      `json:"connections"`
	Services    []Service  `json:"services"`
	Pools       []Pool     `json:"pools"`

	// RatesOver is the time in seconds all Rates are averaged over; 0 means that
	// there is no earlier status to compare with and Rates are absent.
	RatesOver float64 `json:"rates_over"`
}

// ReloadInfo tells how the last reload went; the start counts as the first one.
type ReloadInfo struct {
	At    time.Time `json:"at"`
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
}

// Service is one service; a removed one is listed while it has connections.
type Service struct {
	Name        string            `json:"name"`
	Listen      []string          `json:"listen"`
	Pool        string            `json:"pool"`
	State       string            `json:"state"` // up | draining
	Connections int64             `json:"connections"`
	Total       uint64            `json:"total"` // accepted
	BytesIn     uint64            `json:"bytes_in"`
	BytesOut    uint64            `json:"bytes_out"`
	Outcomes    map[string]uint64 `json:"outcomes"` // how ended connections ended; zero counts may be left out
	Rates       *Rates            `json:"rates,omitempty"`
}

// Pool is one pool; a removed one is listed while it has connections.
type Pool struct {
	Name     string    `json:"name"`
	Balance  string    `json:"balance"`
	Eligible int       `json:"eligible"` // backends that new connections may go to
	Backends []Backend `json:"backends"`
}

// Backend is one backend of a pool; a removed one is listed while it has
// connections.
type Backend struct {
	Name            string  `json:"name"`
	Address         string  `json:"address"`
	State           string  `json:"state"`            // up | down | ejected | drain | maint | unresolved | removed
	Reason          string  `json:"reason,omitempty"` // why it is not up
	Weight          int     `json:"weight"`
	Backup          bool    `json:"backup"`
	Connections     int64   `json:"connections"`
	Total           uint64  `json:"total"`     // established
	BytesIn         uint64  `json:"bytes_in"`  // to the backend
	BytesOut        uint64  `json:"bytes_out"` // from the backend
	ConnectFailures uint64  `json:"connect_failures"`
	ConnectP50      float64 `json:"connect_p50"` // seconds, as all below; 0 = nothing measured
	ConnectP99      float64 `json:"connect_p99"`
	FirstByteP50    float64 `json:"first_byte_p50"`
	FirstByteP99    float64 `json:"first_byte_p99"`
	Check           *Check  `json:"check,omitempty"` // nil without an active check
	Rates           *Rates  `json:"rates,omitempty"`
}

// Check is what the active check of a backend says.
type Check struct {
	Type   string    `json:"type"`
	Up     bool      `json:"up"`
	Reason string    `json:"reason,omitempty"` // of the vocabulary: L4CON, L7STS, ...
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`    // the last probe; zero = none yet
	Took   float64   `json:"took"`  // seconds
	Since  time.Time `json:"since"` // up or down since
	Probes uint64    `json:"probes"`
}

// Rates are averages over the last Status.RatesOver seconds.
type Rates struct {
	Connections float64 `json:"connections"` // new ones per second
	BytesIn     float64 `json:"bytes_in"`    // per second
	BytesOut    float64 `json:"bytes_out"`   // per second
}

// ReloadResult is the answer to POST /v1/reload.
type ReloadResult struct {
	OK      bool     `json:"ok"`
	Error   string   `json:"error,omitempty"`
	Changes []string `json:"changes"` // one line per object that changed; empty = nothing did
}
