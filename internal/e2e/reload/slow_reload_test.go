package reload

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// A reload waits for a name whose server never answers. Commands, status, checks and
// clients do not wait for it, and neither does the end, which is in order.
func TestSlowReload(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	asked := func() {
		_ = silent.SetReadDeadline(time.Now().Add(rig.Patience))
		if _, _, err := silent.ReadFrom(make([]byte, 512)); err != nil {
			t.Fatalf("the reload looks nothing up: %v", err)
		}
	}
	db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
	const check = "    check: {type: tcp, interval: 50ms, fast_interval: 50ms, down_interval: 50ms, rise: 1, fall: 1}\n"
	yaml := fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen, rig.OnePool("web", "round-robin", check, db))
	named := func(name string) string {
		return yaml + fmt.Sprintf("  slow: {backends: [\"%s.test:1\"], resolve: {servers: [%q]}}\n", name, silent.LocalAddr())
	}
	p := rig.Start(t, yaml)
	client := admin.NewClient(p.Socket())

	p.Write(t, named("one"))
	reloaded := make(chan error, 1)
	go func() {
		res, err := client.Reload(t.Context())
		if err == nil && !res.OK {
			err = fmt.Errorf("refused: %s", res.Error)
		}
		reloaded <- err
	}()
	asked()
	for _, state := range []string{admin.OperatorDrain, admin.OperatorReady} {
		promptly(t, state, func(ctx context.Context) error {
			_, err := admin.NewClient(p.Socket()).SetState(ctx, "web", "db1", admin.StateRequest{State: state})
			return err
		})
	}
	if name := rig.Dial(t, listen).MustAsk(t); name != "db1" {
		t.Errorf("%s served", name)
	}
	db.Kill()
	rig.Eventually(t, "the check to fail", func() bool { return p.Backend(t, "web", "db1").State == "down" })
	if err := <-reloaded; err != nil {
		t.Error(err)
	}

	p.Write(t, named("two"))
	for drained := false; !drained; { // of what was asked for the first name
		_ = silent.SetReadDeadline(time.Now())
		_, _, err := silent.ReadFrom(make([]byte, 512))
		drained = err != nil
	}
	p.Signal(syscall.SIGHUP)
	for query := make([]byte, 512); ; { // the first name is asked for again and again
		_ = silent.SetReadDeadline(time.Now().Add(rig.Patience))
		n, _, err := silent.ReadFrom(query)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(query[:n]), "two") {
			break
		}
	}
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done:
	case <-time.After(prompt):
		t.Fatal("SIGTERM waits for the reload")
	}
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
