package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/poise-lb/poise/l4/balance"
)

func TestStateFileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "state.json")
		_ = os.Remove(path)
		o, _ := kept(path)
		for i := range rapid.IntRange(0, 5).Draw(t, "n") {
			h := Order{
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
		if diff := cmp.Diff(o.all(), again.all(), compareOrders); diff != "" {
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
	o.set("p|a", Order{Pool: "p", Backend: "b", Address: "a", State: "drain"})
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
		"huge":     strings.Repeat(" ", MaxStateFile+1),
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
			o.set("p|a", Order{Pool: "p", Address: "a", State: "maint"})
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
	o.set("p|a", Order{Pool: "p", Address: "a", State: "drain"})
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
