package cert

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What stays is said again after a day; what comes and goes, once a minute.
func TestWarningsAreRationed(t *testing.T) {
	log := new(logged)
	source := &wailing{}
	w := newWatcher(func() []Source { return []Source{{"service web", source}} }, log.logger(), func(State) {})
	now := time.Now()
	step := func(after time.Duration, want int, warnings ...string) {
		t.Helper()
		source.now = warnings
		w.pass(now.Add(after), func([]string) {})
		if got := len(log.with("reason=")); got != want {
			t.Errorf("after %v: %d lines, want %d", after, got, want)
		}
	}
	step(0, 2, "a", "b")
	step(5*time.Second, 2, "a", "b")
	step(23*time.Hour, 2, "a", "b")
	step(24*time.Hour, 4, "a", "b")
	step(24*time.Hour+30*time.Second, 4, "a")
	step(24*time.Hour+35*time.Second, 4, "a", "b")
	step(24*time.Hour+40*time.Second, 4, "a")
	step(24*time.Hour+61*time.Second, 5, "a", "b")
	step(24*time.Hour+62*time.Second, 5)
	step(25*time.Hour, 6, "b")
	if len(w.said) != 1 {
		t.Errorf("%d warnings are remembered, want 1", len(w.said))
	}
}

// Services that share a file share the line; it says which they are.
func TestWarningsNameTheirServices(t *testing.T) {
	log, shared := new(logged), &wailing{now: []string{"a", "a"}}
	sources := []Source{{"service web", shared}, {"pool db", shared}, {"service mqtt", &wailing{now: []string{"b"}}}}
	w := newWatcher(func() []Source { return sources }, log.logger(), func(State) {})
	w.pass(time.Now(), func([]string) {})
	for reason, of := range map[string]string{"a": `"service web, pool db"`, "b": `"service mqtt"`} {
		if lines := log.with("need attention"); len(lines) != 2 || len(log.with("of="+of+" reason="+reason)) != 1 {
			t.Errorf("no line about %s, of %s, in\n%s", reason, of, strings.Join(lines, ""))
		}
	}
}

type wailing struct{ now []string }

func (w *wailing) Refresh() ([]string, error) { return nil, nil }
func (w *wailing) Warnings() []string         { return w.now }
func (w *wailing) broken() int                { return 0 }
func (w *wailing) files() []string            { return nil }

// Files that stay as they are are not read at every look, wherever the wall clock is
// set to: that of the test is years behind their stamps.
func TestPartUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority("ca")
		path := write(t, filepath.Join(t.TempDir(), "ca"), ca.pem())
		p := &part[*authorities]{keys: []string{"tls.ca"}, paths: []string{path}, build: loadAuthorities}
		for i, unread := range []bool{false, true, true} {
			p.refresh()
			if got := !p.mark.Changed(stamps(p.paths)...); got != unread {
				t.Errorf("look %d: the next one will not read: %t", i, got)
			}
			time.Sleep(5 * time.Second)
		}
		replace(t, path, newAuthority("other").pem())
		if n := p.refresh(); !n.changed {
			t.Error("a file that was replaced is not noticed")
		}
	})
}
