package reload

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// What the operator has said survives reloads and restarts, and gives way to what
// is edited, whether the process runs then or not.
func TestOperatorStateIsKept(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := rig.Weighted(listen, a, b, 100, 100)
	p := rig.Start(t, yaml)
	expect := func(p *rig.Proc, stateOfA string, weightOfB int) {
		t.Helper()
		if s, w := p.Backend(t, "web", "a").State, p.Backend(t, "web", "b").Weight; s != stateOfA || w != weightOfB {
			t.Errorf("a is %s and b weighs %d, want %s and %d", s, w, stateOfA, weightOfB)
		}
		if got := shares(t, listen, 4); stateOfA != "up" && got["a"] != 0 {
			t.Errorf("%v", got)
		}
	}
	p.Operate(t, "maint", "web/a")
	p.Operate(t, "weight", "web/b", "7")
	expect(p, "maint", 7)
	p.MustReload(t, yaml)
	expect(p, "maint", 7)

	fi, err := os.Stat(p.State())
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if fi, err = os.Stat(p.Socket()); err != nil || fi.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}

	// A restart, and one after a crash.
	p.Stop(t)
	q := restart(t, p)
	expect(q, "maint", 7)
	q.Signal(syscall.SIGKILL)
	q.Wait(t)
	q = restart(t, p)
	expect(q, "maint", 7)

	// The weight is edited, while it runs; the state holds.
	q.MustReload(t, rig.Weighted(listen, a, b, 100, 90))
	expect(q, "maint", 90)
	q.MustReload(t, yaml)
	expect(q, "maint", 100)
	// And while it does not.
	q.Operate(t, "weight", "web/b", "8")
	q.Stop(t)
	q.Write(t, rig.Weighted(listen, a, b, 100, 60))
	q = restart(t, p)
	expect(q, "maint", 60)
	q.Operate(t, "ready", "web/a")
	q.Stop(t)

	// Garbage in the file does not prevent the start.
	if err := os.WriteFile(p.State(), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	q = restart(t, p)
	expect(q, "up", 60)
	if !strings.Contains(q.Stderr(), "the operator's state is lost") {
		t.Error("nothing about it in the log")
	}
	q.Operate(t, "drain", "web/a")
	q.Stop(t)
	q = restart(t, p)
	expect(q, "drain", 60)
	// Nor does no file at all.
	q.Stop(t)
	if err := os.Remove(p.State()); err != nil {
		t.Fatal(err)
	}
	expect(restart(t, p), "up", 60)
}

// restart runs the binary on the files of a process that has ended.
func restart(t *testing.T, old *rig.Proc) *rig.Proc {
	t.Helper()
	yaml, err := os.ReadFile(old.Config())
	if err != nil {
		t.Fatal(err)
	}
	q := rig.Launch(t, string(yaml), rig.InFolderOf(old))
	q.Dir, q.HTTP = old.Dir, old.HTTP
	rig.Eventually(t, "the process to be ready", func() bool {
		if q.Gone() {
			t.Fatalf("poise ended before it was ready\n%s", q.Stderr())
		}
		return q.Readyz() == 200
	})
	return q
}
