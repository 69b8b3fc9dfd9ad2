package control

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/l4/disk"
)

// What could not be read at the start is not replaced by the next command: what it
// says would be lost. It is enough that it can be read later; only a restart reads it.
func TestUnreadStateFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil { // also root cannot read it
		t.Fatal(err)
	}
	o, log := kept(path)
	if !strings.Contains(log.String(), "stays as it is") {
		t.Errorf("the log:\n%s", log)
	}
	o.set("p|a", Order{Pool: "p", Address: "a", State: "drain"})
	for range 2 {
		if err := o.save(); err == nil || !strings.Contains(err.Error(), "left as it is") {
			t.Errorf("%v", err)
		}
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := writeState(path, stateFile{stateVersion, []Order{{Pool: "p", Address: "b", State: "maint"}}}); err != nil {
		t.Fatal(err)
	}
	if err := o.save(); err == nil {
		t.Error("a file that nothing has read is replaced")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := o.save(); err != nil {
		t.Error(err)
	}
	if again, _ := kept(path); len(again.all()) != 1 {
		t.Error("it is not saved")
	}

	// A reload that names another file does no better than a start.
	other := filepath.Join(t.TempDir(), "other.json")
	if err := syscall.Mkfifo(other, 0o600); err != nil {
		t.Fatal(err)
	}
	if o.use(other); o.save() == nil {
		t.Error("it replaces what it cannot read")
	}
}

// A symbolic link to the file stays one, and what it leads to is replaced as a whole.
func TestStateFileBehindLink(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	link, file := filepath.Join(dir, "state.json"), filepath.Join(far, "real.json")
	if err := os.Symlink(file, filepath.Join(dir, "hop")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("hop", link); err != nil {
		t.Fatal(err)
	}
	o, _ := kept(link) // leads to nothing yet
	for _, state := range []string{"drain", "maint"} {
		o.set("p|a", Order{Pool: "p", Address: "a", State: state})
		if err := o.save(); err != nil {
			t.Fatal(err)
		}
		if entries, err := readState(file); err != nil || len(entries) != 1 || entries[0].State != state {
			t.Errorf("%+v, %v", entries, err)
		}
		if to, err := os.Readlink(link); err != nil || to != "hop" {
			t.Errorf("the link: %q, %v", to, err)
		}
	}
	if err := os.WriteFile(file, []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept(link)
	if aside, err := os.ReadFile(file + ".corrupt"); err != nil || string(aside) != "?" {
		t.Errorf("%q, %v", aside, err)
	}
	if to, err := os.Readlink(link); err != nil || to != "hop" {
		t.Errorf("the link: %q, %v", to, err)
	}
}

// A disk that does not answer holds up neither commands nor reloads nor the stop;
// what they have said is written when it answers again.
func TestStateFileOnStuckDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	const pools = "pools: {web: {backends: [{name: a, address: \"127.0.0.1:1\"}, \"127.0.0.1:2\"], check: {type: none}}}"
	c, reload, _ := controlled(t, path, pools)
	stuck := make(chan struct{})
	c.operator.saving <- struct{}{} // so that the field can be changed
	c.operator.write = func(path string, content stateFile) error {
		<-stuck
		return writeState(path, content)
	}
	<-c.operator.saving
	began := time.Now()
	for _, state := range []string{admin.OperatorDrain, admin.OperatorReady, admin.OperatorMaint} {
		done, err := c.SetState("web", "a", admin.StateRequest{State: state})
		if err != nil {
			t.Fatal(err)
		}
		if c.Order(done.Member).Word() != state || len(done.Warnings) != 1 || !strings.Contains(done.Warnings[0], errSlow.Error()) {
			t.Errorf("%+v", done)
		}
	}
	reload(pools)
	if what := c.Waits(func(try func() bool) bool { return try() }); what != "" {
		t.Errorf("%s wait", what)
	}
	if took := time.Since(began); took > 3*disk.Patience+10*time.Second {
		t.Errorf("three commands and a reload took %s", took)
	}
	close(stuck)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		entries, err := readState(path)
		if err == nil && len(entries) == 1 && entries[0].State == admin.OperatorMaint {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the file has %+v, %v", entries, err)
		}
	}
	if err := c.operator.save(); err != nil {
		t.Error(err)
	}
}
