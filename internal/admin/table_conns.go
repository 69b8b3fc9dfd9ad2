package admin

import (
	"bytes"
	"io"
	"time"
)

// ConnTable writes connections as text for people; see StatusTable.
func ConnTable(w io.Writer, l ConnList) error {
	st := styleOf(w)
	g := &grid{columns: []column{
		{title: "CLIENT", shrink: 3},
		{title: "PROTO"},
		{title: "SERVICE", shrink: 2},
		{title: "POOL/BACKEND", shrink: 1},
		{title: "STATE"},
		{title: "AGE", right: true},
		{title: "IDLE", right: true},
		{title: "IN B", right: true},
		{title: "OUT B", right: true},
	}}
	for _, c := range l.Conns {
		target := c.Pool + "/" + c.Backend
		if c.Backend == "" {
			target = c.Pool
		}
		g.add(cell{text: c.Client.String()}, cell{text: c.Proto}, cell{text: c.Service}, cell{text: target}, cell{text: c.State, colour: connColours[c.State]},
			cell{text: age(c.Age)}, cell{text: age(c.Idle)}, cell{text: short(float64(c.BytesIn))}, cell{text: short(float64(c.BytesOut))})
	}
	var out bytes.Buffer
	g.write(&out, st)
	_, err := w.Write(out.Bytes())
	return err
}

var connColours = map[string]colour{"open": green, "connecting": yellow, "queued": yellow, "closing": yellow}

// age writes seconds as ago does, and what is younger than ten of them with a
// decimal.
func age(s float64) string {
	if s < 10 {
		return shortRate(s) + "s"
	}
	return ago(time.Duration(s * float64(time.Second)))
}
