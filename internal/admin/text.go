package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/plural"
)

// How numbers are written for people, in the status table and on the page.

// unknown stands for what has not been measured.
const unknown = "–"

// short writes a count in at most five characters: 9999, 12.3k, 456k, 7.89M.
func short(n float64) string {
	if n < 10_000 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G", "T"} {
		if n /= 1000; n < 999.5 {
			return digits(n) + unit
		}
	}
	return digits(n/1000) + "P"
}

// shortly writes a count and what is counted.
func shortly(n uint64, noun string) string {
	return short(float64(n)) + " " + plural.Noun(n == 1, noun)
}

// shortRate is short with a decimal for what is rare.
func shortRate(n float64) string {
	if n > 0 && n < 99.95 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return short(n)
}

// digits writes three significant digits of a number from 1 to 1000.
func digits(n float64) string {
	switch {
	case n < 9.995:
		return strconv.FormatFloat(n, 'f', 2, 64)
	case n < 99.95:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// seconds writes a measured duration with three significant digits.
func seconds(s float64) string {
	switch {
	case s <= 0:
		return unknown
	case s < 0.9995e-3:
		return digits(s*1e6) + "µs"
	case s < 0.9995:
		return digits(s*1e3) + "ms"
	case s < 999.5:
		return digits(s) + "s"
	}
	return ago(time.Duration(s * float64(time.Second)))
}

// percent writes a part of the whole.
func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" }

// latency writes a median and a 99th percentile.
func latency(p50, p99 float64) string {
	if p99 <= 0 {
		return unknown
	}
	return seconds(p50) + "/" + seconds(p99)
}

// ago writes a long duration with its two leading units: 3d 4h, 2m 5s.
func ago(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	days, rest := d/(24*time.Hour), d%(24*time.Hour)
	hours, minutes, secs := rest/time.Hour, rest%time.Hour/time.Minute, rest%time.Minute/time.Second
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm %ds", minutes, secs)
	}
	return fmt.Sprintf("%ds", secs)
}

// counts writes counts by word, the most frequent first.
func counts(counts map[string]uint64) string {
	words := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, word := range words {
		if n := counts[word]; n > 0 {
			parts = append(parts, word+" "+short(float64(n)))
		}
	}
	return strings.Join(parts, ", ")
}

// count returns how many backends are up, and of how many. Those on standby are counted
// apart: they are where they should be. But if none is up they are missing too.
func (p *Pool) count() (up, wanted, standby int) {
	for _, b := range p.Backends {
		switch b.State {
		case "removed":
			continue
		case "standby":
			standby++
			continue
		case "up":
			up++
		}
		wanted++
	}
	if up == 0 {
		wanted += standby
	}
	return up, wanted, standby
}

// weight writes the weight in force, and the configured one if the operator has
// given another.
func (b *Backend) weight() string {
	if b.FileWeight == nil {
		return strconv.Itoa(b.Weight)
	}
	return fmt.Sprintf("%d (file: %d)", b.Weight, *b.FileWeight)
}

// sprayed tells of datagrams that no column counts.
func (b *Backend) sprayed() string {
	if b.Datagrams == 0 {
		return ""
	}
	return "datagrams: " + short(float64(b.Datagrams)) + ", each balanced by itself"
}

// trouble says why a backend is not up, or not yet in full, or what its check says
// against it, and since or until when; "" if all is well.
func (b *Backend) trouble(now time.Time) string {
	text := b.Reason
	c := b.Check
	if text == "" && c != nil && (c.Reason != "" || c.Detail != "") {
		text = strings.TrimPrefix(c.Reason+": "+c.Detail, ": ")
		text = "check: " + strings.TrimSuffix(text, ": ")
	}
	if b.State == "up" && b.Ramp > 0 && b.Ramp < 100 {
		text = strings.TrimSuffix(fmt.Sprintf("slow start: %d %% of its share; %s", b.Ramp, text), "; ")
	}
	if !b.EjectedUntil.IsZero() {
		text += " (on trial in " + ago(b.EjectedUntil.Sub(now)) + ")"
	}
	if text != "" && c != nil && !c.Up && !c.Since.IsZero() {
		text += " (for " + ago(now.Sub(c.Since)) + ")"
	}
	return text
}
