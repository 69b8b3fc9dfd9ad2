package control

import (
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// Connected tells the outlier detector how a connect ended. It runs on a loop.
func (c *Control) Connected(b *balance.Backend, r l4.ConnectReason) {
	if r.Local() {
		return // says nothing about the backend
	}
	if m := c.Set().members[b]; m != nil {
		m.Pool.outlier.Connected(m.key, r == l4.ConnectOK)
	}
}

// Began tells it of a session of UDP: it has reached its backend, as far as that can
// be known. It runs on a loop.
func (c *Control) Began(b *balance.Backend) { c.Connected(b, l4.ConnectOK) }

// Fared tells it how an established connection fared. It runs on a loop.
func (c *Control) Fared(b *balance.Backend, e l4.Evidence, client netip.Addr) {
	m := c.Set().members[b]
	switch {
	case m == nil:
	case e == l4.Doubtful:
		m.Pool.outlier.Doubted(m.key, client)
	default:
		m.Pool.outlier.Answered(m.key, e == l4.Answered)
	}
}

// Answered tells it of a reply from a UDP backend. It runs on a loop.
func (c *Control) Answered(b *balance.Backend, ok bool) {
	if m := c.Set().members[b]; m != nil {
		m.Pool.outlier.Answered(m.key, ok)
	}
}

// Refused tells it of an ICMP error that came back from a UDP backend: no client can
// bring that about, unless the backend sees its address. It runs on a loop.
func (c *Control) Refused(b *balance.Backend) {
	m := c.Set().members[b]
	if m == nil || m.Pool.Transparent && m.Pool.Passive.Checked {
		return // a firewall may refuse one client, whose address need not even be its own
	}
	m.Pool.outlier.Answered(m.key, false)
}
