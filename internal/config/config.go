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
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// File is a whole valid configuration with every default filled in. It is plain
// data owned by the caller; services and pools are sorted by name.
type File struct {
	Admin    Admin
	Log      Log
	Runtime  Runtime
	Services []Service
	Pools    []Pool
}

// Admin says where the control interfaces listen.
type Admin struct {
	Socket string // absolute path of the control socket
	HTTP   string // "address:port" of the read-only HTTP server; "" = off
	State  string // absolute path of the file that keeps what operators say; "" = none
}

// Log says what is logged, and how.
type Log struct {
	Level        slog.Level
	Format       string // "text" or "json"
	Access       string // "none", "stdout" or an absolute file path
	AccessFormat string // "tcplog" or "json"
}

// Runtime holds the settings of the process as a whole.
type Runtime struct {
	Workers   int           // event loops; 0 = one per usable CPU; at most 1024
	PreStop   time.Duration // on stop, how long to go on accepting while not ready; 0 = none
	Drain     time.Duration // then, how long open connections may go on; 0 = none
	AllowExec bool          // there may be checks that run commands
}

// Service is one entry point and the pool its connections go to.
type Service struct {
	Name string
	Pool string // always the name of one of File.Pools
	TCP  tcp.Spec
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
	Source                netip.Addr // local address towards the backends; the zero value leaves it to the kernel
}
