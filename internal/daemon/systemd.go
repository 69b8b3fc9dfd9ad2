package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
)

// notifier tells the service manager how the daemon is: sd_notify(3). The zero
// value tells nobody, and so does any without a service manager that listens.
type notifier struct{ log *slog.Logger }

func (n notifier) send(states ...string) {
	if n.log == nil {
		return
	}
	if _, err := systemd.SdNotify(false, strings.Join(states, "\n")); err != nil {
		n.log.Warn("the service manager was not notified", "error", err)
	}
}

func (n notifier) ready(f *config.File) {
	n.send(systemd.SdNotifyReady, "STATUS="+plural.Of(len(f.Services), "service")+", "+plural.Of(len(f.Pools), "pool"))
}

// reloading is followed by ready, whether the reload is refused or not. With
// Type=notify-reload the time tells the service manager which reload this is.
func (n notifier) reloading() {
	n.send(systemd.SdNotifyReloading, strings.TrimSpace(systemd.SdNotifyMonotonicUsec()))
}

// stopping asks for the time that the stop may take; without it the service
// manager would end a drain longer than TimeoutStopSec=.
func (n notifier) stopping(limits config.Runtime) {
	const afterwards = leaving + time.Second
	n.send(systemd.SdNotifyStopping, "STATUS=stopping",
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (limits.PreStop+limits.Drain+afterwards).Microseconds()))
}

// feedWatchdog tells the service manager that the process is alive, while it is, twice in the interval that it asks for (WatchdogSec=).
func (d *Daemon) feedWatchdog(ctx context.Context, n notifier) {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("the service manager's watchdog is not fed", "error", err)
	}
	if interval <= 0 || n.log == nil {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if d.alive(interval/4) == nil {
				n.send(systemd.SdNotifyWatchdog)
			}
		}
	}
}
