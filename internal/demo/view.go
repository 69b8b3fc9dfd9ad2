package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// frame is one picture of the running demonstration.
type frame struct {
	balance, listen, page string
	elapsed               time.Duration
	scene                 scene
	number, of            int     // of the scene, from 1
	progress              float64 // of the scene, 0..1
	rows                  []row
	all                   view
	totals                totals
	retried               uint64
	log                   []string // the daemon's last lines
}

// row is one backend of a frame.
type row struct {
	name, state string
	connections int64
	view        view
}

// Room for the log, and the widths of the bars: with them the table is 79
// columns wide.
const (
	logLines  = 3
	connsBar  = 12
	rateBar   = 15
	sceneBar  = 18
	connsFull = 24             // connections that fill their bar
	rateFull  = loadRate / 1.5 // new connections a second that fill theirs
)

// style wraps a text in an SGR sequence, or does not.
type style func(code, text string) string

func coloured(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }
func plain(_, text string) string       { return text }

// The SGR codes in use.
const (
	bold, dim          = "1", "2"
	red, green, yellow = "31", "32", "33"
	cyan               = "36"
)

// render draws f as lines of at most 80 columns.
func render(f frame, as style) []string {
	lines := []string{
		as(bold, "poise demo") + fmt.Sprintf("   %s   %.0f connections/s to %s", f.balance, loadRate, f.listen) +
			as(dim, fmt.Sprintf("   %.0fs", f.elapsed.Seconds())),
		"",
		as(dim, fmt.Sprintf("scene %d/%d   ", f.number, f.of)) + as(bold, fmt.Sprintf("%-40s", f.scene.caption)) +
			as(cyan, bar(f.progress, sceneBar)) + as(dim, strings.Repeat("─", sceneBar-cells(f.progress, sceneBar))),
		"            " + f.scene.watch,
		"",
		as(dim, fmt.Sprintf("%-8s %-8s %-17s %-21s %8s %8s", "backend", "state", "connections", "new/s", "p50", "p99")),
	}
	connections, rate := int64(connsFull), rateFull
	for _, r := range f.rows {
		for connections < r.connections {
			connections *= 2
		}
		rate = max(rate, r.view.rate)
	}
	for _, r := range f.rows {
		state := as(stateColour(r.state), fmt.Sprintf("%-8.8s", r.state))
		lines = append(lines, fmt.Sprintf("%-8.8s %s %4d %s %5.0f %s %8s %8s", r.name, state,
			r.connections, as(cyan, padded(float64(r.connections)/float64(connections), connsBar)),
			r.view.rate, as(cyan, padded(r.view.rate/rate, rateBar)),
			orDash(r.view.p50), orDash(r.view.p99)))
	}
	failed := as(green, "0 failed")
	if f.totals.failed > 0 {
		failed = as(red, fmt.Sprintf("%d failed", f.totals.failed))
	}
	lines = append(lines, "",
		fmt.Sprintf("clients  %d answered  %s  %d retried  p50 %s  p99 %s",
			f.totals.answered, failed, f.retried, orDash(f.all.p50), orDash(f.all.p99)),
		"")
	for i := range logLines {
		label, text := "         ", ""
		if i == 0 {
			label = "daemon   "
		}
		if i < len(f.log) {
			text = f.log[i]
		}
		lines = append(lines, as(dim, label+text))
	}
	return append(lines, "", as(dim, fmt.Sprintf("%-56s Ctrl-C ends the demo", "status page http://"+f.page+"/")))
}

func stateColour(state string) string {
	switch state {
	case "up":
		return green
	case "down", "ejected":
		return red
	}
	return yellow
}

func orDash(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return loadgen.Short(d)
}

// bar draws a share of width cells in eighths of a cell; anything above nothing
// is seen.
func bar(share float64, width int) string {
	eighths := int(min(max(share, 0), 1)*float64(width)*8 + 0.5)
	if share > 0 {
		eighths = max(eighths, 1)
	}
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return b
}

// cells is the number of cells that bar draws in.
func cells(share float64, width int) int { return len([]rune(bar(share, width))) }

// padded is bar with spaces up to width.
func padded(share float64, width int) string {
	return bar(share, width) + strings.Repeat(" ", width-cells(share, width))
}

// clip cuts a line after width columns. Escape sequences take none, and those
// behind the cut stay: they end what was begun before it.
func clip(line string, width int) string {
	var b strings.Builder
	column, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
			b.WriteRune(r)
		case escape:
			escape = r < '@' || r > '~' || r == '['
			b.WriteRune(r)
		case column < width:
			column++
			b.WriteRune(r)
		}
	}
	return b.String()
}
