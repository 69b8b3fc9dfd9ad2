package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4"
	listening "github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

// passedSockets takes the sockets that the service manager has opened for the daemon:
// sd_listen_fds(3). It returns nil if there is none, and says which it cannot use.
func passedSockets() (o *listening.Opener, unusable []string) {
	var sockets []sock.Passed
	for _, f := range activation.Files(true) {
		s, err := sock.Receive(int(f.Fd()))
		if err != nil {
			unusable = append(unusable, fmt.Sprintf("the service manager passes a socket (%s) that cannot be used: %v", f.Name(), err))
		} else {
			sockets = append(sockets, s)
		}
		_ = f.Close() // there is a duplicate
	}
	if len(sockets) > 0 {
		o = listening.NewOpener(sockets)
	}
	return o, unusable
}

// unserved names the sockets of the service manager at which no service of the
// generation listens.
func (g *generation) unserved(o *listening.Opener) (all []string) {
	var tcp, udp []l4.Listen
	for _, s := range g.file.Services {
		if s.UDP != nil {
			udp = append(udp, s.UDP.Listen...)
		} else {
			tcp = append(tcp, s.TCP.Listen...)
		}
	}
	for _, at := range o.Unserved(tcp, udp) {
		all = append(all, "the service manager passes a socket at "+at+", and no service listens there: its clients wait in vain")
	}
	return all
}

// notifier tells the service manager how the daemon is: sd_notify(3). The zero
// value tells nobody, and so does any without a service manager that listens.
type notifier struct{ log *slog.Logger }

func (n notifier) send(states ...string) {
	if n.log == nil {
		return
	}
	if err := n.write(strings.Join(states, "\n")); err != nil {
		n.log.Warn("the service manager was not notified", "error", err)
	}
}

// notifyPatience bounds how long a service manager may keep the daemon waiting.
const notifyPatience = 500 * time.Millisecond

// write is sd_notify(3) with a deadline, which that of the library does not have: a
// service manager that reads nothing must hold up neither a reload nor the end.
func (n notifier) write(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyPatience)); err != nil {
		return err
	}
	_, err = c.Write([]byte(state))
	return err
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
