// Package config turns one YAML file, and the conf.d folder beside it, into the
// validated specs of the domain packages. It is the only door configuration
// comes through: `poise check`, start and reload all call Load.
//
// Parsing is strict and reports every problem at once, each with its position
// and key path. Nothing outside the files and the environment is consulted: no
// name is resolved, no address bound. It has no state and starts no goroutine.
package config

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// File is a whole valid configuration with every default filled in. It is plain
// data owned by the caller; services and pools are sorted by name.
type File struct {
	Admin    Admin
	Log      Log
	Runtime  Runtime
	Cluster  Cluster
	Services []Service
	Pools    []Pool

	// What comes from the environment: Hide hides what the variables hold in texts that
	// others have made, and Told says of a single value what may be told.
	Variables []Variable
	Origins   map[string]string // how a value with variables is written, by its path
}

// Admin says where the control interfaces listen.
type Admin struct {
	Socket string   // absolute path of the control socket
	HTTP   string   // "address:port" of the read-only HTTP server; "" = off
	Hosts  []string // names by which it may be called, in lower case
	State  string   // absolute path of the file that keeps what operators say; "" = none
}

// Log says what is logged, and how.
type Log struct {
	Level        slog.Level
	Format       string // "text" or "json"
	Access       string // "none", "stdout" or an absolute file path
	AccessFormat string // "poise", "tcplog" or "json"
}

// Runtime holds the settings of the process as a whole.
type Runtime struct {
	Workers   int           // event loops; 0 = one per usable CPU; at most 1024
	PreStop   time.Duration // on stop, how long to go on accepting while not ready; 0 = none
	Drain     time.Duration // then, how long open connections may go on; 0 = none
	AllowExec bool          // there may be checks that run commands
}

// Cluster holds what both boxes of a pair have in common.
type Cluster struct {
	// Secret seeds what chooses by a hash of the client, so that a stranger cannot work
	// out where an address leads; "" = no seed. At least 16 bytes.
	Secret health.Secret
}

// Service is one entry point and the pools its clients are sent to.
type Service struct {
	Name  string
	Pool  string // the name of one of File.Pools; "" if SNI names pools instead
	Admit admit.Spec
	TLS   *cert.Spec // TLS ends here; nil = no. Not with SNI
	SNI   *SNI       // nil = no

	// Exactly one of them: that of the protocol.
	TCP *tcp.Spec
	UDP *udp.Spec
}

// Protocol is what the service speaks with its clients.
func (s Service) Protocol() l4.Proto {
	if s.UDP != nil {
		return l4.UDP
	}
	return l4.TCP
}

// Listen returns the addresses of the service, ranges expanded.
func (s Service) Listen() []l4.Listen {
	if s.UDP != nil {
		return s.UDP.Listen
	}
	return s.TCP.Listen
}

// Pools returns the names of the pools that clients are sent to, sorted.
func (s Service) Pools() []string {
	names := []string{s.Pool}
	if s.SNI != nil {
		names = []string{s.SNI.Default, s.SNI.NotTLS, s.SNI.NoHello}
		for _, r := range s.SNI.Rules {
			names = append(names, r.Pool)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

// Pool is one set of backends, how to choose among them and how to judge them.
type Pool struct {
	Balance     balance.Spec // Backends are those given by address
	Discovery   Discovery    // where others come from
	Check       health.Spec
	Passive     health.PassiveSpec
	OnDownClose bool    // close connections open to a backend that goes down
	OnRemove    Removal // what becomes of connections open to a backend that is configured no longer
	// CloseBackupOnRecovery closes the connections open to backups when a primary
	// is eligible again.
	CloseBackupOnRecovery bool
	Source                netip.Addr       // local address towards the backends; the zero value leaves it to the kernel
	Transparent           bool             // connect from the client's address instead
	SendProxy             string           // PROXY header to the backends: "v1", "v2" or "v2-each" (UDP only); "" = none
	ProxyTLVs             ProxyTLVs        // fields of headers of version 2
	TLS                   *cert.ClientSpec // nil = none
	StartTLS              bool             // with TLS: ask a PostgreSQL server for it first
	UDP                   bool             // a service with protocol udp uses it
	// Replay is how many first bytes of a client are kept until the backend answers,
	// to be sent to another if it resets before; 0 = none, at most 64 KiB.
	Replay int
}
