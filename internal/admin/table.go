package admin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/plural"
)

// StatusTable writes s as text for people. On a terminal it is coloured, unless
// the environment variable NO_COLOR is set, and cut to its width; 100 columns are
// enough but for long names.
func StatusTable(w io.Writer, s Status) error {
	_, err := w.Write(styleOf(w).table(&s))
	return err
}

// styleOf finds out how to write to w.
func styleOf(w io.Writer) (st style) {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			st = style{colour: os.Getenv("NO_COLOR") == "", width: int(size.Col)}
		}
	}
	return st
}

// A style is how a table is written. The zero value is plain and as wide as need be.
type style struct {
	colour bool
	width  int // 0 = any
}

// A colour is the parameter of an ANSI sequence; "" is none.
type colour string

const (
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

var stateColours = map[string]colour{
	"up": green, "running": green, "resolved": green, "read": green,
	"half-open": yellow, "standby": dim,
	"down": red, "ejected": red, "unresolved": red,
	"drain": yellow, "maint": yellow, "removed": yellow, "draining": yellow, "stopping": yellow, "stale": yellow, "held": yellow,
}

func (st style) paint(c colour, text string) string {
	if !st.colour || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func (st style) table(s *Status) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s %s  %s  pid %d  up %s  %s\n", st.paint(bold, "poise"), plain(s.Version),
		st.paint(stateColours[s.State], plain(s.State)), s.PID, ago(s.Now.Sub(s.Started)), plain(s.Config))
	out.WriteString(plural.Of(s.Connections, "connection"))
	if s.RatesOver > 0 {
		fmt.Fprintf(&out, "  rates over %s", seconds(s.RatesOver))
	}
	if r := s.LastReload; r.OK || r.At.IsZero() {
		fmt.Fprintf(&out, "  configuration loaded %s\n", r.At.Format("2006-01-02 15:04:05"))
	} else {
		fmt.Fprintf(&out, "\n%s\n", st.paint(red, "the last reload was refused at "+r.At.Format("2006-01-02 15:04:05")+"; the configuration before it is in force:"))
		for line := range strings.Lines(r.Error) {
			out.WriteString("  " + plain(strings.TrimSpace(line)) + "\n")
		}
	}
	for _, text := range s.Problems {
		out.WriteString(st.paint(red, plain(text)) + "\n")
	}
	for _, w := range s.Warnings {
		out.WriteString(st.paint(yellow, "warning: "+plain(w)) + "\n")
	}
	out.WriteByte('\n')
	st.services(s).write(&out, st)
	if list := s.certificates(); len(list) > 0 {
		out.WriteByte('\n')
		certificates(list).write(&out, st)
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		title := fmt.Sprintf("\npool %s  %s  ", st.paint(bold, plain(p.Name)), plain(p.Balance))
		_, wanted, standby := p.count()
		eligible := fmt.Sprintf("%d of %d in use", p.Eligible, wanted)
		if p.Eligible == 0 {
			eligible = st.paint(red, "no backend to send connections to")
		}
		if standby > 0 {
			eligible += fmt.Sprintf(", %d on standby", standby)
		}
		out.WriteString(title + eligible + "\n")
		if moods := st.moods(p); moods != "" {
			out.WriteString(moods + "\n")
		}
		for _, from := range p.Sources {
			out.WriteString(st.source(s, from))
		}
		st.backends(s, p).write(&out, st)
		if len(p.Strategies) > 0 {
			out.WriteByte('\n')
			strategies(p).write(&out, st)
		}
	}
	return out.Bytes()
}

// source is a line about where backends come from.
func (st style) source(s *Status, from Source) string {
	line := fmt.Sprintf("  from %s: %s for %s, %d found", plain(from.Name), st.paint(stateColours[from.State], plain(from.State)),
		ago(s.Now.Sub(from.Since)), from.Backends)
	if from.Reason != "" {
		reason, _, _ := strings.Cut(from.Reason, "\n")
		line += ": " + st.paint(yellow, plain(reason))
	}
	return line + "\n"
}

// moods are what is out of the ordinary with a pool as a whole.
func (st style) moods(p *Pool) string {
	text := ""
	if p.Panic {
		text += "  " + st.paint(red, "panic: too few are healthy")
	}
	if p.OnBackup {
		text += "  " + st.paint(yellow, "on backups")
	}
	if p.Queue > 0 {
		text += "  " + st.paint(yellow, fmt.Sprintf("%d waiting", p.Queue))
	}
	if p.Denied > 0 {
		text += "  " + st.paint(yellow, shortly(p.Denied, "retry")+" denied")
	}
	return text
}

// strategies shows two strategies side by side.
func strategies(p *Pool) *grid {
	g := &grid{columns: []column{
		{title: "STRATEGY"},
		{title: "BALANCE"},
		{title: "SESSIONS", right: true},
		{title: "SHARE", right: true},
		{title: "SUCCESS", right: true},
		{title: "P50 (1 MIN)", right: true},
		{title: "P95 (1 MIN)", right: true},
		{title: "P99 (1 MIN)", right: true},
	}}
	for _, s := range p.Strategies {
		g.add(cell{text: s.Name}, cell{text: s.Balance}, cell{text: short(float64(s.Sessions))},
			cell{text: percent(s.Share)}, cell{text: percent(s.Success)},
			cell{text: seconds(s.P50)}, cell{text: seconds(s.P95)}, cell{text: seconds(s.P99)})
	}
	return g
}

func (st style) services(s *Status) *grid {
	g := &grid{columns: []column{
		{title: "SERVICE", shrink: 2},
		{title: "PROTO"},
		{title: "LISTEN", shrink: 1},
		{title: "POOL", shrink: 2},
		{title: "STATE"},
		{title: "CONN", right: true},
		{title: "TOTAL", right: true},
		{title: "NEW/S", right: true},
		{title: "IN B/S", right: true},
		{title: "OUT B/S", right: true},
	}}
	for i := range s.Services {
		v := &s.Services[i]
		in, out, fresh := v.Rates.texts()
		g.add(cell{text: v.Name}, cell{text: v.Protocol}, cell{text: strings.Join(v.Listen, " ")}, cell{text: v.Pool}, state(v.State),
			cell{text: strconv.FormatInt(v.Connections, 10)}, cell{text: short(float64(v.Total))},
			cell{text: fresh}, cell{text: in}, cell{text: out})
		for _, n := range v.notes() {
			g.note(dim, n)
		}
	}
	return g
}

func (st style) backends(s *Status, p *Pool) *grid {
	g := &grid{columns: []column{
		{title: "BACKEND", shrink: 2},
		{title: "ADDRESS", shrink: 1},
		{title: "STATE"},
		{title: "W", right: true},
		{title: "CONN", right: true},
		{title: "TOTAL", right: true, drop: 2},
		{title: "NEW/S", right: true},
		{title: "IN B/S", right: true},
		{title: "OUT B/S", right: true},
		{title: "FAILED", right: true},
		{title: "CONNECT P50/P99 (1 MIN)", right: true, drop: 1},
	}}
	for i := range p.Backends {
		b := &p.Backends[i]
		name, address := b.Name, b.Address
		if address == name {
			address = ""
		}
		if b.Backup {
			name += " (backup)"
		}
		failed := cell{text: short(float64(b.ConnectFailures))}
		if b.ConnectFailures > 0 {
			failed.colour = yellow
		}
		in, out, fresh := b.Rates.texts()
		g.add(cell{text: name}, cell{text: address}, state(b.State), cell{text: b.weight()},
			cell{text: strconv.FormatInt(b.Connections, 10)}, cell{text: short(float64(b.Total))},
			cell{text: fresh}, cell{text: in}, cell{text: out}, failed,
			cell{text: latency(b.ConnectP50, b.ConnectP99)})
		if text := b.sprayed(); text != "" {
			g.note(dim, text)
		}
		if text := b.trouble(s.Now); text != "" {
			colour := stateColours[b.State]
			if colour == green {
				colour = yellow
			}
			g.note(colour, text)
		}
	}
	return g
}

func state(word string) cell { return cell{text: word, colour: stateColours[word]} }

func (r *Rates) texts() (in, out, fresh string) {
	if r == nil {
		return unknown, unknown, unknown
	}
	return short(r.BytesIn), short(r.BytesOut), shortRate(r.Connections)
}
