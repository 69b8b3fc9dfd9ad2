package admin

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A grid is a table whose columns are as wide as their widest cell.
type grid struct {
	columns []column
	rows    []row
}

type column struct {
	title  string
	right  bool
	drop   int // 0 = never left out; else the order in which columns are, 1 first
	shrink int // 0 = never cut; else the order in which columns are, 1 first
}

type cell struct {
	text   string
	colour colour
}

// A row has cells or is a note to the row before.
type row struct {
	cells []cell
	note  cell
}

func (g *grid) add(cells ...cell) {
	for i := range cells {
		cells[i].text = plain(cells[i].text)
	}
	g.rows = append(g.rows, row{cells: cells})
}

func (g *grid) note(c colour, text string) {
	g.rows = append(g.rows, row{note: cell{plain(text), c}})
}

const (
	margin = "  "
	gap    = "  "
	// leastWidth is what a cut column keeps.
	leastWidth = 8
)

func (g *grid) write(out *bytes.Buffer, st style) {
	widths, gap := g.fit(st.width)
	header := make([]cell, len(g.columns))
	for i, c := range g.columns {
		header[i] = cell{c.title, dim}
	}
	g.line(out, st, widths, gap, header)
	for _, r := range g.rows {
		if r.cells != nil {
			g.line(out, st, widths, gap, r.cells)
			continue
		}
		text := margin + margin + r.note.text
		if st.width > 0 {
			text = cut(text, st.width)
		}
		out.WriteString(st.paint(r.note.colour, text) + "\n")
	}
}

// fit returns how wide each column is, -1 for one that is left out, and what is
// between them; in all no more than limit if that can be. The gaps give way
// first, then the columns that may be left out, then those that may be cut.
func (g *grid) fit(limit int) (widths []int, between string) {
	widths = make([]int, len(g.columns))
	total := len(margin) + len(gap)*(len(g.columns)-1)
	for i, c := range g.columns {
		widths[i] = len(c.title)
		for _, r := range g.rows {
			if r.cells != nil {
				widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i].text))
			}
		}
		total += widths[i]
	}
	if limit == 0 || total <= limit {
		return widths, gap
	}
	total -= len(g.columns) - 1
	for order := 1; order <= len(g.columns); order++ {
		for i, c := range g.columns {
			if c.drop == order && total > limit {
				total -= widths[i] + 1
				widths[i] = -1
			}
		}
	}
	for order := 1; order <= len(g.columns); order++ {
		for i, c := range g.columns {
			if c.shrink == order && total > limit {
				less := max(min(total-limit, widths[i]-max(leastWidth, len(c.title))), 0)
				widths[i] -= less
				total -= less
			}
		}
	}
	return widths, gap[:1]
}

func (g *grid) line(out *bytes.Buffer, st style, widths []int, between string, cells []cell) {
	line := margin
	for i, c := range cells {
		if widths[i] < 0 {
			continue
		}
		text := cut(c.text, widths[i])
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		if g.columns[i].right {
			line += space + st.paint(c.colour, text) + between
		} else {
			line += st.paint(c.colour, text) + space + between
		}
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}

// cut shortens text to width characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// plain replaces what could steer a terminal: errors quote what backends say.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
