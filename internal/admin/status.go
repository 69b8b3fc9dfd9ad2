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

	Operator
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
	Problems    []string   `json:"problems,omitempty"` // what is wrong with the process itself
	Warnings    []string   `json:"warnings"`           // what the operator should know of, one line each
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
	Protocol    string            `json:"protocol"` // tcp | tls (Poise ends the clients' TLS) | udp
	Listen      []string          `json:"listen"`
	Pool        string            `json:"pool"`
	State       string            `json:"state"`       // up | draining
	Connections int64             `json:"connections"` // of UDP: sessions
	Total       uint64            `json:"total"`       // accepted
	BytesIn     uint64            `json:"bytes_in"`
	BytesOut    uint64            `json:"bytes_out"`
	Outcomes    map[string]uint64 `json:"outcomes"` // how ended connections ended; zero counts may be left out
	Refused     map[string]uint64 `json:"refused"`  // those of Outcomes that turned a client away
	TLS         *ServiceTLS       `json:"tls,omitempty"`
	UDP         *ServiceUDP       `json:"udp,omitempty"`
	Rates       *Rates            `json:"rates,omitempty"`
}

// ServiceTLS is the TLS that a service ends, on the clients' side.
type ServiceTLS struct {
	Handshakes   uint64        `json:"handshakes"` // completed, resumed ones included
	Resumed      uint64        `json:"resumed"`
	Active       int64         `json:"active"` // handshakes under way
	Certificates []Certificate `json:"certificates"`
}

// Certificate is one that a service shows its clients.
type Certificate struct {
	Path    string    `json:"path"` // of its file, as configured
	Names   []string  `json:"names"`
	KeyType string    `json:"key_type"` // ECDSA, RSA, ...
	Expires time.Time `json:"expires"`
}

// ServiceUDP is what a UDP service has besides.
type ServiceUDP struct {
	DatagramsIn  uint64            `json:"datagrams_in"`  // from clients
	DatagramsOut uint64            `json:"datagrams_out"` // to clients
	Dropped      map[string]uint64 `json:"dropped"`       // by reason; zero counts may be left out
	Rates        *DatagramRates    `json:"rates,omitempty"`
}

// DatagramRates are averages over the last Status.RatesOver seconds.
type DatagramRates struct {
	In  float64 `json:"in"`  // per second
	Out float64 `json:"out"` // per second
}

// Pool is one pool; a removed one is listed while it has connections.
type Pool struct {
	Name     string `json:"name"`
	Balance  string `json:"balance"`
	Eligible int    `json:"eligible"`       // backends that new connections may go to
	Panic    bool   `json:"panic"`          // too few are healthy: all are used
	OnBackup bool   `json:"on_backup"`      // no primary is eligible: the backups are used
	Queue    int    `json:"queue"`          // connections that wait for a backend with room
	Denied   uint64 `json:"retries_denied"` // retries that the budget did not allow

	// Strategies are the two that the pool compares, side by side; none otherwise.
	Strategies []Strategy `json:"strategies,omitempty"`
	Sources    []Source   `json:"sources,omitempty"`
	Backends   []Backend  `json:"backends"`
}

// Source is a name or a file that backends of a pool come from.
type Source struct {
	Name     string    `json:"name"`             // as configured: "db.internal:5432", "srv:_pg._tcp.example.org", "/etc/poise/pg.list"
	State    string    `json:"state"`            // resolved | read | stale | held | unresolved
	Reason   string    `json:"reason,omitempty"` // what is wrong with it, if anything
	Backends int       `json:"backends"`         // found there; those that were there before included
	Since    time.Time `json:"since"`            // State has been so since
	At       time.Time `json:"at,omitzero"`      // of a name: the last lookup; zero = none yet
	Next     time.Time `json:"next,omitzero"`    // of a name: the next lookup
}

// Strategy is one of two that a pool compares. Counts are over the life of the pool, percentiles over the last minute.
type Strategy struct {
	Name     string  `json:"name"` // a | b
	Balance  string  `json:"balance"`
	Sessions uint64  `json:"sessions"`
	Share    float64 `json:"share"`   // of all sessions, 0 to 1
	Success  float64 `json:"success"` // attempts with a first byte of all that have a result, 0 to 1; 0 without any
	P50      float64 `json:"p50_1m"`  // seconds to the first byte, of the last minute; 0 = none then
	P95      float64 `json:"p95_1m"`
	P99      float64 `json:"p99_1m"`
}

// Backend is one backend of a pool; a removed one is listed while it has
// connections.
type Backend struct {
	Name            string    `json:"name"`
	Address         string    `json:"address"`
	State           string    `json:"state"`                  // up | half-open | down | ejected | drain | maint | unresolved | removed
	Reason          string    `json:"reason,omitempty"`       // why it is not up
	Operator        string    `json:"operator,omitempty"`     // drain | maint, if the operator says so
	Weight          int       `json:"weight"`                 // in force
	FileWeight      *int      `json:"file_weight,omitempty"`  // the configured one, while the operator's is in force
	Ramp            int       `json:"ramp"`                   // percent of its share that slow start allows by now; 100 = all
	EjectedUntil    time.Time `json:"ejected_until,omitzero"` // when it will be on trial
	Trials          int       `json:"trials,omitempty"`       // half-open: connections that it may still get
	Backup          bool      `json:"backup"`
	Connections     int64     `json:"connections"`
	Total           uint64    `json:"total"`               // established
	Datagrams       uint64    `json:"datagrams,omitempty"` // of services with spray, which make no connections
	BytesIn         uint64    `json:"bytes_in"`            // to the backend
	BytesOut        uint64    `json:"bytes_out"`           // from the backend
	ConnectFailures uint64    `json:"connect_failures"`
	ConnectP50      float64   `json:"connect_p50_1m"` // of the last minute, in seconds, as all below; 0 = none then
	ConnectP99      float64   `json:"connect_p99_1m"`
	FirstByteP50    float64   `json:"first_byte_p50_1m"`
	FirstByteP99    float64   `json:"first_byte_p99_1m"`
	Check           *Check    `json:"check,omitempty"` // nil without an active check
	Rates           *Rates    `json:"rates,omitempty"`
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

	// CertExpires is when the certificate expires that the check was shown last; zero if it was shown none.
	CertExpires time.Time `json:"cert_expires,omitzero"`
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
	// Warnings are what the operator should know of, whether it was refused or not.
	Warnings []string `json:"warnings"`
}
