package daemon

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What is stuck shows. Once it is free again, all is well.
func TestLive(t *testing.T) {
	d, err := start(Options{Stdout: io.Discard, Stderr: io.Discard, File: parse(t, fmt.Sprintf(`
admin: {socket: %s/s, http: "", state: ""}
services:
  web: {listen: [%q], pool: web}
pools:
  web: {check: {type: tcp, interval: 50ms, timeout: 50ms, fall: 1}, backends: ["127.0.0.1:1"]}
`, t.TempDir(), reserve(t)))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	if err := d.Live(); err != nil {
		t.Error(err)
	}
	for what, lock := range map[string]*sync.Mutex{"changes": &d.committing, "reloads": &d.mu} {
		lock.Lock()
		if err := d.Live(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		lock.Unlock()
		if err := d.Live(); err != nil {
			t.Error(err)
		}
	}
}

// The watchdog is not fed while something is stuck.
func TestWatchdogStarves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d, _, _ := operatedDaemon(t, "")
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", fmt.Sprint((200 * time.Millisecond).Microseconds()))
	d.background.Go(func() { d.feedWatchdog(t.Context(), notifier{d.log}) })
	fed := func(within time.Duration) bool {
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := c.Read(make([]byte, 100))
		return err == nil
	}
	if !fed(20 * time.Second) {
		t.Fatal("it is not fed")
	}
	d.committing.Lock()
	for end := time.Now().Add(20 * time.Second); fed(time.Second); {
		if time.Now().After(end) {
			t.Error("it is fed all the same")
			break
		}
	}
	d.committing.Unlock()
	if !fed(20 * time.Second) {
		t.Error("it is not fed any more")
	}
}
