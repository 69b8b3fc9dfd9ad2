package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen redraws a block of lines in place at the bottom of a terminal. The
// cursor stays hidden at the block's end until close.
type screen struct {
	w     io.Writer
	size  func() (width, height int)
	lines []string // the block as it stands
}

// newScreen returns nil if w is not a terminal that can place its cursor.
func newScreen(w io.Writer) *screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{w: f, size: func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}}
}

// draw replaces the block by lines, cut to the size of the terminal: a line that
// wrapped or scrolled would not be found again. All of it is one write between
// the marks of a synchronised update, so that no half of it is ever shown.
func (s *screen) draw(lines []string) error {
	width, height := s.size()
	lines = lines[:min(len(lines), height-1)]
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[?25l\r")
	if up := min(len(s.lines), height) - 1; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clip(line, width))
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	s.lines = lines
	_, err := io.WriteString(s.w, b.String())
	return err
}

// close leaves the block where it is and gives the cursor back.
func (s *screen) close() {
	end := "\x1b[?25h"
	if len(s.lines) > 0 {
		_ = s.draw(s.lines) // over the ^C that the terminal has put at its end
		end += "\r\n"
	}
	_, _ = io.WriteString(s.w, end)
}
