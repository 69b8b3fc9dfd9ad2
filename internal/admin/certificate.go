package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/plural"
)

// expiresSoon is how long before its end a certificate stands out: whatever renews
// it should have done so by then.
const expiresSoon = 14 * 24 * time.Hour

// mostCertificates is how many are shown on a terminal: those that expire first.
const mostCertificates = 20

// A tone says how much a text matters.
type tone string

const (
	calm tone = ""
	warn tone = "warn"
	bad  tone = "bad"
)

var toneColours = map[tone]colour{warn: yellow, bad: red}

// A certificateView is a certificate as people are shown it.
type certificateView struct {
	*Certificate
	Service string
	Left    string // until it expires, or since
	Tone    tone
}

// certificates lists those of all services, the first to expire first.
func (s *Status) certificates() (list []certificateView) {
	for i := range s.Services {
		v := &s.Services[i]
		if v.TLS == nil {
			continue
		}
		for j := range v.TLS.Certificates {
			c := certificateView{Certificate: &v.TLS.Certificates[j], Service: v.Name}
			left := c.Expires.Sub(s.Now)
			switch {
			case left <= 0:
				c.Left, c.Tone = "expired "+days(-left)+" ago", bad
			case left < expiresSoon:
				c.Left, c.Tone = "in "+days(left), warn
			default:
				c.Left, c.Tone = "in "+days(left), calm
			}
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b certificateView) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Path, b.Path))
	})
	return list
}

// days writes how many days are full, or hours and less if it is not one.
func days(d time.Duration) string {
	if n := d / (24 * time.Hour); n > 0 {
		return plural.Of(n, "day")
	}
	return ago(d)
}

// certificates is the table of a list that is not empty.
func certificates(list []certificateView) *grid {
	g := &grid{columns: []column{
		{title: "CERTIFICATE", shrink: 2},
		{title: "SERVICE", shrink: 3},
		{title: "NAMES", shrink: 1},
		{title: "KEY", drop: 1},
		{title: "EXPIRES"},
	}}
	for i, c := range list {
		if i == mostCertificates {
			g.note(dim, fmt.Sprintf("and %d that expire later", len(list)-i))
			break
		}
		g.add(cell{text: c.Path}, cell{text: c.Service}, cell{text: strings.Join(c.Names, " ")}, cell{text: c.KeyType},
			cell{text: c.Left, colour: toneColours[c.Tone]})
	}
	return g
}
