// Package signals takes the signals of `poise run` from the earliest moment there is:
// when this package is initialised, before most others are. A SIGHUP that comes before
// the daemon is ready would otherwise end it; like this it is a reload once the daemon
// is ready.
//
// Before that moment lies the start of the Go runtime, in which SIGHUP has its default
// effect unless the process was started with SIGHUP ignored, as nohup does.
package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// command is the word of the command line whose process has signals of its own.
const command = "run"

// Each kind has a channel of its own: any number of reloads leaves room for an end.
var (
	reload = make(chan os.Signal, 1) // one that is not yet served answers them all
	stop   = make(chan os.Signal, 2) // the second one is an end to all waiting
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == command {
		take()
	}
}

func take() {
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	// The reader of a log may go away; traffic must not go with it.
	// A handler of which nothing comes: check programs would inherit that a signal is
	// ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// Take returns what asks for a reload and what asks for the end, those included that
// have come since the process began. Release gives signals their default effect.
func Take() (reloads, stops <-chan os.Signal, release func()) {
	take()
	return reload, stop, func() {
		signal.Stop(reload)
		signal.Stop(stop)
	}
}
