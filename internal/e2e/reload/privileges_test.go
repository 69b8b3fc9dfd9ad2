package reload

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Every thread has given up all that is not needed, and what a reload needs is
// still there.
func TestPrivilegesDropped(t *testing.T) {
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	yaml := rig.OneService(rig.Addr(t), "round-robin", db)
	p := rig.Start(t, "log: {level: debug}\n"+yaml)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.PID()))
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	const allowed = 1 << unix.CAP_NET_BIND_SERVICE
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // a thread may end
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			switch key {
			case "CapInh", "CapPrm", "CapEff", "CapAmb":
				if set, err := strconv.ParseUint(value, 16, 64); err != nil || set&^allowed != 0 {
					t.Errorf("%s: %s", path, line)
				}
			case "CapBnd":
				if set, err := strconv.ParseUint(value, 16, 64); err != nil || os.Getuid() == 0 && set&^allowed != 0 {
					t.Errorf("%s: %s", path, line)
				}
			case "NoNewPrivs":
				if value != "1" {
					t.Errorf("%s: %s", path, line)
				}
			}
		}
	}
	if strings.Contains(p.Stderr(), "privileges") {
		t.Error("they were not dropped")
	}

	if os.Getuid() != 0 {
		rig.Unavailable(t, "ports below 1024 need root")
	}
	low := lowAddr(t)
	p.MustReload(t, rig.OneService(low, "round-robin", db))
	if _, err := rig.Ask(low); err != nil {
		t.Error(err)
	}
}

// lowAddr returns a free address whose port needs a privilege.
func lowAddr(t *testing.T) string {
	t.Helper()
	for port := 1023; port > 512; port-- {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			ln.Close()
			return ln.Addr().String()
		}
	}
	t.Fatal("no free port below 1024")
	return ""
}
