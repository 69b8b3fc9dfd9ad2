package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/poise-lb/poise/l4/balance"
)

// Removal says what becomes of the connections to a backend that is configured no
// longer. The zero value keeps them.
type Removal struct {
	Close bool
	After time.Duration // how long they may go on; 0 = not at all
}

// String returns the setting as it is written.
func (r Removal) String() string {
	switch {
	case !r.Close:
		return "keep"
	case r.After > 0:
		return drainWord + short(r.After)
	}
	return "close"
}

// algorithms are the words for those that there are.
func algorithms() []meaning[string] {
	var words []string
	for _, a := range balance.Algorithms {
		words = append(words, a.Word)
	}
	return themselves(words...)
}

// policyKeys are the keys of a pool that say who gets how much, and when.
func policyKeys(p *pool) []key {
	b := &p.Balance
	return []key{
		section("ab",
			choice("a", none, &p.ab.A, algorithms()),
			choice("b", none, &p.ab.B, algorithms()),
			key{name: "split", typ: "number, 0 to 1", def: "0.5", read: readSplit(&p.ab.Split), show: decimal(&p.ab.Split)},
		).when(func() bool { return b.AB != nil }),
		section("sticky",
			choice("by", "none", &p.stickyOn, either("none", "source")),
			duration("ttl", "10m", &p.sticky.TTL, time.Second, year),
			countFrom("size", "100k", &p.sticky.Size, 1, "16m"),
		),
		section("queue",
			countFrom("size", "0", &b.Queue.Size, 0, "1m"),
			duration("timeout", "5s", &b.Queue.Timeout, time.Millisecond, time.Hour),
		),
		duration("slow_start", "0s", &b.SlowStart, 0, time.Hour),
		number("panic", "0", &b.Panic, 0, 100),
		section("retry_budget",
			number("percent", "20", &b.Retry.Percent, 0, 1000),
			number("floor", "10", &b.Retry.Floor, 1, 100000),
		),
		{name: "on_remove", typ: "keep, close, or drain and a duration", def: "keep", read: readRemoval(&p.OnRemove), show: func() string { return p.OnRemove.String() }},
		boolean("close_backup_on_recovery", "false", &p.CloseBackupOnRecovery),
	}
}

// readSplit stores a part of the whole.
func readSplit(dst *float64) func(*value) {
	return func(v *value) {
		if !v.unquoted("0.5") {
			return
		}
		f, err := strconv.ParseFloat(v.text, 64)
		if !factor.MatchString(v.text) || err != nil || f > 1 {
			v.fail("%s is not a part of the connections; write a number from 0 to 1, such as 0.5", v.quoted())
			return
		}
		*dst = f
	}
}

// drainWord is what the duration of a drain follows.
const drainWord = "drain "

// readRemoval stores "keep", "close" or "drain 30s".
func readRemoval(dst *Removal) func(*value) {
	return func(v *value) {
		if !v.scalar("keep, close or drain 30s") {
			return
		}
		const longest = 7 * 24 * time.Hour
		r := Removal{Close: true}
		switch {
		case v.text == "keep":
			*dst = Removal{}
		case v.text == "close":
			*dst = r
		case strings.HasPrefix(v.text, drainWord):
			if v.duration(drainWord, &r.After, func() string { return "more than 0s, up to " + short(longest) }, func(d time.Duration) bool { return 0 < d && d <= longest }) {
				*dst = r
			}
		default:
			v.fail("%s is not known here; write keep, close or drain 30s", v.quoted())
		}
	}
}

// finishPolicy applies the rules of policy that concern several keys.
func (p *pool) finishPolicy() {
	_, ownBalance := p.given["balance"]
	_, ownAB := p.given["ab"]
	switch a, b := p.has("ab.a"), p.has("ab.b"); {
	case a != b:
		p.problem([]string{"ab"}, "compares two; write both a and b, such as {a: least-conn, b: p2c}")
	case ownAB && ownBalance && a:
		p.problem([]string{"ab", "balance"}, "is instead of balance; remove one of them")
	case a && (ownAB || !ownBalance): // a pool's own balance goes before an inherited comparison
		ab := p.ab
		p.Balance.AB, p.Balance.Algorithm = &ab, ""
	case ownAB && !a && p.has("ab.split"):
		p.problem([]string{"ab.split"}, "has no effect without a and b; give both, or remove it")
	}
	if p.stickyOn {
		sticky := p.sticky
		p.Balance.Sticky = &sticky
	} else if _, given := p.given["sticky.ttl"]; given {
		p.problem([]string{"sticky.ttl", "sticky.by"}, "has no effect with by: none; write by: source, or remove it")
	} else if _, given := p.given["sticky.size"]; given {
		p.problem([]string{"sticky.size", "sticky.by"}, "has no effect with by: none; write by: source, or remove it")
	}
	if _, given := p.given["queue.timeout"]; given && p.Balance.Queue.Size == 0 {
		p.problem([]string{"queue.timeout", "queue.size"}, "has no effect with size: 0; give the queue a size, or remove it")
	}
}
