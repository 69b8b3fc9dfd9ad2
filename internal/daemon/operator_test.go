package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
)

func pointer(n int) *int { return &n }

var compareHeld = cmp.Options{cmpopts.IgnoreUnexported(held{}), cmpopts.SortSlices(func(a, b held) bool { return a.Address < b.Address })}

// kept is an operator whose file is at path, and what it logs.
func kept(path string) (*operator, *bytes.Buffer) {
	var log bytes.Buffer
	o := newOperator(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	o.load(path)
	return o, &log
}

func (o *operator) all() (list []held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.held {
		list = append(list, h)
	}
	return list
}

func TestStateFileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "state.json")
		_ = os.Remove(path)
		o, _ := kept(path)
		for i := range rapid.IntRange(0, 5).Draw(t, "n") {
			h := held{
				Pool:    rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,8}`).Draw(t, "pool"),
				Backend: rapid.String().Draw(t, "backend"),
				Address: fmt.Sprintf("10.0.0.%d:1", i),
				State:   rapid.SampledFrom([]string{"", "drain", "maint"}).Draw(t, "state"),
			}
			h.Backend = strings.ToValidUTF8(h.Backend, "")
			if h.State != "" {
				h.Since = time.Unix(rapid.Int64Range(1, 4e9).Draw(t, "since"), 0).UTC()
			}
			if rapid.Bool().Draw(t, "weighs") {
				h.Weight = pointer(rapid.IntRange(0, 65535).Draw(t, "weight"))
				h.FileWeight = rapid.IntRange(0, 65535).Draw(t, "file")
			}
			o.set(memberKey(h.Pool, balance.Address{Unix: h.Address}), h)
		}
		if err := o.save(); err != nil {
			t.Fatal(err)
		}
		again, log := kept(path)
		if diff := cmp.Diff(o.all(), again.all(), compareHeld); diff != "" {
			t.Fatalf("%s\n%s", diff, log)
		}
	})
}

func TestStateFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state.json")
	o, log := kept(path)
	if !strings.Contains(log.String(), "level=DEBUG") || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("a missing file: %s", log)
	}
	if err := o.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file without need: %v", err)
	}
	o.set("p|a", held{Pool: "p", Backend: "b", Address: "a", State: "drain"})
	if err := o.save(); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("what else is there: %v, %v", entries, err)
	}
	// It is written again only if something has changed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := o.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written twice: %v", err)
	}
}

// Whatever is in the file, the start goes on; what cannot be understood is not
// lost.
func TestStateFileCorrupt(t *testing.T) {
	for name, content := range map[string]string{
		"empty":    "",
		"cut off":  `{"version": 1, "backends": [{"pool": "p", "addr`,
		"version":  `{"version": 2, "backends": []}`,
		"none":     `{}`,
		"state":    `{"version": 1, "backends": [{"pool": "p", "address": "a", "state": "up"}]}`,
		"weight":   `{"version": 1, "backends": [{"pool": "p", "address": "a", "weight": 65536}]}`,
		"no pool":  `{"version": 1, "backends": [{"address": "a", "state": "drain"}]}`,
		"huge":     strings.Repeat(" ", maxStateFile+1),
		"binary":   "\x00\xff",
		"trailing": `{"version": 1, "backends": []} x`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			o, log := kept(path)
			if len(o.all()) != 0 || !strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("%+v\n%s", o.all(), log)
			}
			if aside, err := os.ReadFile(path + ".corrupt"); err != nil || string(aside) != content {
				t.Errorf("%d bytes are kept of %d, %v", len(aside), len(content), err)
			}
			o.set("p|a", held{Pool: "p", Address: "a", State: "maint"})
			if err := o.save(); err != nil {
				t.Fatal(err)
			}
		})
	}
	dir := t.TempDir() // cannot be read at all
	if o, log := kept(dir); len(o.all()) != 0 || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%+v\n%s", o.all(), log)
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"version": 1, "backends": [{"pool": "p", "backend": "b", "address": "a", "state": "drain", "since": "2026-01-02T03:04:05Z", "weight": 0, "file_weight": 100}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseState(data)
		if err != nil {
			if !errors.Is(err, errState) || entries != nil {
				t.Errorf("%v, %v", entries, err)
			}
			return
		}
		for _, h := range entries {
			if err := h.valid(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestStateFileCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ := kept("")
	o.use(filepath.Join(file, "state.json"))
	o.set("p|a", held{Pool: "p", Address: "a", State: "drain"})
	for range 2 { // it is not taken for saved
		if err := o.save(); err == nil {
			t.Fatal("no error")
		}
	}
	other := filepath.Join(t.TempDir(), "state.json")
	o.use(other)
	if err := o.save(); err != nil {
		t.Fatal(err)
	}
	if again, _ := kept(other); len(again.all()) != 1 {
		t.Error("the new file does not have it")
	}
}

// What holds after a pool has become what the configuration says.
func TestReconcile(t *testing.T) {
	now := time.Now()
	addr := func(last byte) balance.Address {
		return balance.Address{Unix: fmt.Sprintf("/%d", last)}
	}
	key := memberKey("p", addr(1))
	spec := func(weight int, hosts ...byte) balance.Spec {
		s := balance.Spec{Name: "p"}
		for _, n := range hosts {
			s.Backends = append(s.Backends, balance.BackendSpec{Name: "b", Addr: addr(n), Weight: weight})
		}
		return s
	}
	drained := held{Pool: "p", Backend: "b", Address: addr(1).String(), State: "drain"}
	weighed := held{Pool: "p", Backend: "b", Address: addr(1).String(), Weight: pointer(7), FileWeight: 100}
	both := weighed
	both.State = "maint"
	edited := drained
	edited.State = "maint"
	other := drained
	other.Pool = "q"
	for _, c := range []struct {
		name       string
		before     held
		spec       balance.Spec
		discovered bool
		after      held
	}{
		{"drain stays", drained, spec(50, 1, 2), false, drained},
		{"weight stays", weighed, spec(100, 1, 2), false, weighed},
		{"the file is edited", weighed, spec(50, 1), false, held{}},
		{"edited to what the operator said", weighed, spec(7, 1), false, held{}},
		{"a state outlives an edited weight", both, spec(50, 1), false, edited},
		{"gone", drained, spec(100, 2), false, held{}},
		{"not found for now", both, spec(100, 2), true, both},
		{"another pool's", other, spec(100, 2), false, other},
	} {
		o, _ := kept("")
		o.set(key, c.before)
		o.unsaved = false
		o.reconcile(c.spec, c.discovered, now)
		got := o.due(key)
		if diff := cmp.Diff(c.after, got, compareHeld); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		if changed := !cmp.Equal(c.before, got, compareHeld); o.unsaved != changed {
			t.Errorf("%s: to be written: %v", c.name, o.unsaved)
		}
	}

	// What came from a name is remembered for a while, from when it went.
	o, _ := kept("")
	o.set(key, drained)
	for _, step := range []struct {
		after time.Duration
		hosts []byte
		want  string
	}{
		{0, []byte{2}, "drain"},
		{absence - 1, nil, "drain"},
		{absence, []byte{1}, "drain"},
		{2 * absence, []byte{2}, "drain"},
		{3*absence - 1, []byte{2}, "drain"},
		{3 * absence, []byte{2}, ""},
	} {
		o.reconcile(spec(100, step.hosts...), true, now.Add(step.after))
		if got := o.due(key).State; got != step.want {
			t.Errorf("after %s: %q", step.after, got)
		}
	}
	o.set(key, drained)
	o.forget([]*pool{{Pool: config.Pool{Balance: balance.Spec{Name: "q"}}}})
	if len(o.all()) != 0 {
		t.Error("a pool that is gone is remembered")
	}
}

// operatedDaemon is a daemon of two backends, a of weight 100 and b of weight 50.
func operatedDaemon(t *testing.T, state string) (d *Daemon, log *safeBuffer, reload func(backends string)) {
	t.Helper()
	dir, listen, http := t.TempDir(), reserve(t), reserve(t)
	file := func(backends string) *config.File {
		return parse(t, fmt.Sprintf(`
admin: {socket: %s/s, http: %q, state: %q}
services:
  web: {listen: [%q], pool: web}
pools:
  web: {check: {type: none}, backends: %s}
`, dir, http, state, listen, backends))
	}
	const both = `[{name: a, address: "127.0.0.1:1", weight: 100}, {name: b, address: "127.0.0.1:2", weight: 50}]`
	log = &safeBuffer{}
	d, err := start(Options{File: file(both), Stdout: io.Discard, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d, log, func(backends string) {
		t.Helper()
		if _, err := d.apply(file(strings.ReplaceAll(backends, "BOTH", both))); err != nil {
			t.Fatal(err)
		}
	}
}

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func must(t *testing.T) func(admin.BackendState, error) admin.BackendState {
	return func(s admin.BackendState, err error) admin.BackendState {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestOperator(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	d, log, reload := operatedDaemon(t, path)
	look := func(name, want string) {
		t.Helper()
		s := must(t)(d.Backend("web", name))
		if got := fmt.Sprint(s.Operator, " ", s.State, " ", s.Weight, " ", s.FileWeight); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	look("a", "ready up 100 100")
	if s := must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"})); len(s.Warnings) != 0 || s.Operator != "drain" {
		t.Errorf("%+v", s)
	}
	must(t)(d.SetWeight("web", "b", pointer(7)))
	look("a", "drain drain 100 100")
	look("b", "ready up 7 50")
	if n := d.generation.Load().pools[0].balance.Eligible(); n != 1 {
		t.Errorf("%d are eligible", n)
	}

	// A reload changes nothing of it, nor does another name or order.
	reload("BOTH")
	look("a", "drain drain 100 100")
	look("b", "ready up 7 50")
	reload(`[{name: b, address: "127.0.0.1:2", weight: 50}, {name: renamed, address: "127.0.0.1:1", weight: 90}]`)
	look("renamed", "drain drain 90 90")
	look("b", "ready up 7 50")

	// The one that is left may go too, which is worth a word.
	if s := must(t)(d.SetState("web", "b", admin.StateRequest{State: "maint"})); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "no backend left") {
		t.Errorf("%+v", s.Warnings)
	}
	must(t)(d.SetState("web", "b", admin.StateRequest{State: "ready"}))
	look("b", "ready up 7 50")

	// What is edited counts, and is not undone by editing it back.
	reload(`[{name: a, address: "127.0.0.1:1"}, {name: b, address: "127.0.0.1:2", weight: 60}]`)
	look("b", "ready up 60 60")
	reload("BOTH")
	look("b", "ready up 50 50")

	// Out of the configuration and in again: it is somebody new.
	reload(`[{name: b, address: "127.0.0.1:2", weight: 50}]`)
	reload("BOTH")
	look("a", "ready up 100 100")

	must(t)(d.SetWeight("web", "a", pointer(0)))
	look("a", "ready up 0 100")
	must(t)(d.SetWeight("web", "a", nil))
	look("a", "ready up 100 100")
	must(t)(d.SetWeight("web", "a", nil)) // nothing changes

	for _, want := range []struct {
		n    int
		line string
	}{
		{1, `msg="backend state is changed" pool=web backend=a address=127.0.0.1:1 by=operator reason=drain was=ready`},
		{1, `backend=b address=127.0.0.1:2 by=operator reason=maint was=ready`},
		{1, `backend=b address=127.0.0.1:2 by=operator reason=ready was=maint`},
		{1, `by=operator reason=weight weight=7 was=auto configured=50`},
		{1, `by=operator reason=weight weight=auto was=0 configured=100`},
		{6, `by=operator`},
		{1, `by=configuration weight=60 was=7 was_configured=50`},
		{1, `is forgotten`},
	} {
		if n := strings.Count(log.String(), want.line); n != want.n {
			t.Errorf("%d times %q in the log, want %d:\n%s", n, want.line, want.n, log)
		}
	}
	changes := uint64(0)
	for _, b := range d.generation.Load().pools[0].balance.Backends() {
		for c, n := range (source{d}).StateChanges(b) {
			if c.Author == "operator" {
				changes += n
			}
		}
	}
	if changes == 0 {
		t.Error("the changes are not counted")
	}
}

// What has been said before a restart is in force when the first connection
// comes, and the file follows a change of the configuration.
func TestOperatorSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	write := func(h ...held) {
		t.Helper()
		if err := writeState(path, stateFile{stateVersion, h}); err != nil {
			t.Fatal(err)
		}
	}
	write(held{Pool: "web", Backend: "a", Address: "127.0.0.1:1", State: "maint", Since: time.Now()},
		held{Pool: "web", Backend: "b", Address: "127.0.0.1:2", Weight: pointer(3), FileWeight: 49},
		held{Pool: "gone", Backend: "c", Address: "127.0.0.1:3", State: "drain"})
	d, log, _ := operatedDaemon(t, path)
	if s := must(t)(d.Backend("web", "a")); s.State != "maint" || !strings.Contains(s.Reason, "maint by the operator since") {
		t.Errorf("%+v", s)
	}
	if s := must(t)(d.Backend("web", "b")); s.Weight != 50 {
		t.Errorf("edited while it was down: %+v\n%s", s, log)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		entries, err := readState(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 1 && entries[0].Backend == "a" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the file has %+v", entries)
		}
	}
}

func TestOperatorCannotKeep(t *testing.T) {
	d, log, _ := operatedDaemon(t, "/proc/nowhere/state.json")
	s := must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"}))
	if s.State != "drain" || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "/proc/nowhere") {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(log.String(), "is not kept") {
		t.Errorf("the log:\n%s", log)
	}
	d, _, _ = operatedDaemon(t, "")
	if s := must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"})); s.State != "drain" || len(s.Warnings) != 0 {
		t.Errorf("without a file: %+v", s)
	}
}

func TestOperatorUnknownNames(t *testing.T) {
	d, _, _ := operatedDaemon(t, "")
	for _, c := range []struct{ pool, backend, want string }{
		{"wbe", "a", `there is no pool "wbe"; did you mean "web"?`},
		{"database", "a", `there is no pool "database"; the pools are web`},
		{"web", "xyz", `there is no backend "xyz"; the backends are a, b`},
	} {
		_, err := d.Backend(c.pool, c.backend)
		_, err2 := d.SetState(c.pool, c.backend, admin.StateRequest{State: "drain"})
		_, err3 := d.SetWeight(c.pool, c.backend, pointer(1))
		_, err4 := d.Conns(admin.ConnQuery{Pool: c.pool, Backend: c.backend, Limit: 1})
		for _, err := range []error{err, err2, err3, err4} {
			if !errors.As(err, &admin.NotFound{}) || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
	}
	if _, err := d.Conns(admin.ConnQuery{Limit: 1}); err != nil {
		t.Error(err)
	}
}

// A backend that comes from a file of backends stays drained while it is not
// listed for a moment, and through a restart.
func TestOperatorOfDiscovered(t *testing.T) {
	dir, listen, http := t.TempDir(), reserve(t), reserve(t)
	list := filepath.Join(dir, "list")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(list+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() *Daemon {
		t.Helper()
		d, err := start(Options{Stdout: io.Discard, Stderr: io.Discard, File: parse(t, fmt.Sprintf(`
admin: {socket: %s/s, http: %q, state: %s/state.json}
services:
  web: {listen: [%q], pool: web}
pools:
  web: {check: {type: none}, backends_file: %s}
`, dir, http, dir, listen, list))})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	eventually := func(d *Daemon, name, want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			s, err := d.Backend("web", name)
			if got = s.State; err != nil {
				got = "unknown"
			}
			if got == want {
				return
			}
		}
		t.Fatalf("%s is %s, want %s", name, got, want)
	}
	const both, one = "127.0.0.1:1 name=a weight=10\n127.0.0.1:2 name=b\n", "127.0.0.1:2 name=b\n"
	write(both)
	d := begin()
	must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"}))
	if s := must(t)(d.SetWeight("web", "a", pointer(3))); s.Weight != 3 || s.FileWeight != 10 {
		t.Errorf("%+v", s)
	}
	write(one)
	eventually(d, "a", "unknown")
	write(both)
	eventually(d, "a", "drain")
	write(one)
	eventually(d, "a", "unknown")
	d.close()
	d = begin()
	defer func() { d.close() }()
	eventually(d, "a", "unknown")
	write(both)
	eventually(d, "a", "drain")
	if s := must(t)(d.Backend("web", "a")); s.Weight != 3 {
		t.Errorf("%+v", s)
	}
	write("127.0.0.1:1 name=a weight=11\n" + one) // edited there
	for end := time.Now().Add(20 * time.Second); must(t)(d.Backend("web", "a")).Weight != 11; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the edited weight does not count")
		}
	}
	eventually(d, "a", "drain")
}

// Commands, reloads and verdicts at once: what was said last holds in the end.
func TestOperatorConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	d, _, reload := operatedDaemon(t, path)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 20 {
				state := []string{"drain", "maint", "ready"}[(i+n)%3]
				if _, err := d.SetState("web", "a", admin.StateRequest{State: state}); err != nil {
					t.Error(err)
				}
				if _, err := d.SetWeight("web", "b", pointer(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		reload("BOTH")
		d.Status()
	}
	all.Wait()
	must(t)(d.SetState("web", "a", admin.StateRequest{State: "drain"}))
	s := must(t)(d.SetWeight("web", "b", pointer(9)))
	entries, err := readState(path)
	if err != nil || len(entries) != 2 || entries[0].State != "drain" || *entries[1].Weight != 9 || s.Weight != 9 {
		t.Errorf("%+v, %+v, %v", entries, s, err)
	}
	if f := d.generation.Load().pools[0].balance.Backends()[0].Flags(); f != balance.Drained {
		t.Errorf("a is %s", f)
	}
}
