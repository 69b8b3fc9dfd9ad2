package control

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
)

// departure is a removed backend whose connections may go on for a while.
type departure struct {
	due     time.Time
	spread  time.Duration
	outcome l4.Outcome
}

// depart does with the connections to backends that are removed what their pool's
// on_remove says, from a time on. c.verdicts is held.
func (c *Control) depart(p *Pool, removed []*balance.Backend, from time.Time) {
	if !p.OnRemove.Close {
		return
	}
	due, outcome := from.Add(p.OnRemove.After), l4.BackendDown
	if p.OnRemove.After > 0 {
		outcome = l4.Drained
	}
	for _, b := range removed {
		if due.After(time.Now()) {
			c.departures[b] = departure{due, p.spread(), outcome}
		} else {
			c.data.CloseBackend(b, outcome, p.spread())
		}
	}
}

// closeDeparted closes the connections of departures that are due, but for those that
// have been configured again.
func (c *Control) closeDeparted(now time.Time) {
	c.verdicts.Lock()
	defer c.verdicts.Unlock()
	members := c.Set().members
	for b, dep := range c.departures {
		switch {
		case members[b] != nil || b.Active() == 0:
			delete(c.departures, b)
		case !now.Before(dep.due):
			delete(c.departures, b)
			c.data.CloseBackend(b, dep.outcome, dep.spread)
		}
	}
}
