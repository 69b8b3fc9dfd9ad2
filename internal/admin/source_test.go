package admin

import (
	"strings"
	"testing"
	"time"
)

// TestSources: a pool's sources are shown with their state and, of a file with
// many problems, the first.
func TestSources(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	s := Status{Now: now, Started: now, Pools: []Pool{{Name: "pg", Sources: []Source{
		{Name: "db.internal:5432", State: "resolved", Backends: 2, Since: now.Add(-time.Hour)},
		{Name: "/etc/poise/pg.list", State: "stale", Reason: "line 1\x1b[2J\nline 2", Backends: 1, Since: now.Add(-time.Minute)},
	}}}}
	got := string(style{}.table(&s))
	for _, want := range []string{
		"  from db.internal:5432: resolved for " + ago(time.Hour) + ", 2 found\n",
		"  from /etc/poise/pg.list: stale for " + ago(time.Minute) + ", 1 found: line 1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "line 2") || strings.Contains(got, "\x1b") {
		t.Errorf("more than it should be:\n%q", got)
	}
}
