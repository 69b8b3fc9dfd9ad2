package control

import (
	"time"

	"github.com/poise-lb/poise/l4/balance"
)

const (
	// stalledTogether is how many connections stuck in retransmission at once make
	// a backend's death likely enough to look. One or two may have bad networks of
	// their own.
	stalledTogether = 3
	// suspicionLasts is for how long after the last byte to a backend its silence
	// is suspicious.
	suspicionLasts = 15 * time.Second
)

// silences are what is known of the bytes of each backend.
type silences map[*balance.Backend]*traffic

type traffic struct {
	in, out uint64
	sent    time.Time // in has grown
	stalled bool
}

// findStalled has a backend checked at once when several of its connections have
// stalled together, whose host has probably died, instead of waiting for the next
// turn of its check. The kernel is asked only about those who have been sent
// something lately and have not said a word since.
func (c *Control) findStalled(v silences, now time.Time) {
	if c.data.Connections() == 0 {
		clear(v)
		return
	}
	c.data.Flush()
	members := c.Set().members
	for b := range v {
		if members[b] == nil {
			delete(v, b)
		}
	}
	for b, m := range members {
		if m.Pool.Check.Type == "none" || b.Active() < stalledTogether || b.Flags()&byCheck != 0 {
			delete(v, b)
			continue
		}
		if !v.suspicious(b, now) {
			continue
		}
		stalled, established := c.data.Stalled(b)
		was := v[b].stalled
		v[b].stalled = stalled >= stalledTogether
		if v[b].stalled && !was {
			c.log.Warn("connections to a backend have stalled together: it is checked at once",
				m.attrs("active", "stalled", stalled, "established", established)...)
			c.monitor.ProbeNow(m.key)
		}
	}
}

// suspicious reports whether a backend has been sent something lately and has
// been silent since the last look.
func (v silences) suspicious(b *balance.Backend, now time.Time) bool {
	in, out := b.Stats.BytesIn.Load(), b.Stats.BytesOut.Load()
	s := v[b]
	if s == nil {
		v[b] = &traffic{in: in, out: out, sent: now}
		return false
	}
	spoke := out != s.out
	if in != s.in {
		s.sent = now
	}
	s.in, s.out = in, out
	if spoke {
		s.stalled = false
	}
	return !spoke && now.Sub(s.sent) < suspicionLasts
}
