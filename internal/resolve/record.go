package resolve

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// State says how good the members of a name are.
type State uint8

const (
	Unresolved State = iota // there are none: not looked up yet, or in vain, or given up after the hold time
	Resolved                // they are what a server has said, and not expired
	Stale                   // they are what a server has once said; it could not be asked again
	Held                    // a server says that there are none (any more); they stay for the hold time
)

// String returns "unresolved", "resolved", "stale" or "held".
func (s State) String() string {
	return [...]string{"unresolved", "resolved", "stale", "held"}[s]
}

// Status is what is known about a name.
type Status struct {
	State   State
	Members []Member // sorted, no two alike; shared, not to be changed
	// Detail says why the state is not Resolved; if it is, what could not be
	// looked up in spite of that.
	Detail string

	Since time.Time // State has been so since
	At    time.Time // end of the last lookup; zero before the first
	Next  time.Time // when the name will be asked for again
	Until time.Time // Held only: when the members go if nothing changes
	TTL   time.Duration

	Lookups, Failures uint64 // ended so far, and those that found nothing out
}

// answer is what one lookup has found out.
type answer struct {
	parts []part
	ttl   time.Duration // of what was found, or of what was said not to exist
	empty string        // why there is nothing, in case there is nothing
}

// part is what one question of a lookup has led to. A lookup asks several, and
// one may fail where others do not: a server that answers for A and never for
// AAAA is not rare.
type part struct {
	key     string // "A", or "A db1.example.org 5432" below an SRV record
	members []Member
	err     error // nothing was found out
	denied  bool  // a server denied that the name exists, asked for this or another type
}

// failed is the answer of a lookup that got nowhere.
func failed(err error) answer { return answer{parts: []part{{err: err}}} }

// record is the state machine of one name: answers come in, members come out. It
// is pure; whoever owns it brings the time.
type record struct {
	Status
	parts map[string][]Member // where Members come from
	fails int                 // lookups in a row that found nothing out
	tried bool                // a lookup has ended since the record or its target was new
}

// observe takes in the end of a lookup and reports whether there is something to
// tell: State or Members changed, or a first lookup led to no member.
func (r *record) observe(now time.Time, a answer, limits Limits) (news bool) {
	first := !r.tried
	r.tried = true
	changed := r.follow(now, a, limits)
	return changed || first && len(r.Members) == 0
}

// follow takes in the end of a lookup and reports whether State or Members changed.
func (r *record) follow(now time.Time, a answer, limits Limits) (changed bool) {
	r.At = now
	r.Lookups++
	parts := map[string][]Member{}
	var members []Member
	var errs []error
	found := 0
	for _, p := range a.parts {
		if p.err != nil {
			p.members = r.parts[p.key] // the last good ones
			if len(p.members) == 0 && p.denied {
				continue // there is nothing that the trouble could hide
			}
			errs = append(errs, p.err)
		} else {
			found += len(p.members)
		}
		parts[p.key] = append(parts[p.key], p.members...)
		members = append(members, p.members...)
	}
	err := errors.Join(errs...)
	members = distinct(members)
	if found == 0 && err != nil {
		r.fails++
		r.Failures++
		return r.keep(now, Stale, oneLine(err))
	}
	r.fails = 0
	r.TTL = min(max(a.ttl, limits.MinTTL), limits.MaxTTL)
	if len(members) == 0 {
		return r.hold(now, a.empty, limits.Hold)
	}
	changed = r.enter(now, Resolved)
	r.Detail = ""
	if err != nil {
		r.Detail = oneLine(err)
	}
	r.parts = parts
	if !slices.Equal(r.Members, members) {
		r.Members, changed = members, true
	}
	return changed
}

// hold takes in that there are no members. They go when a server says so and has
// said so since the hold time began, not by the clock: if it cannot be asked in
// the end, it may have been wrong.
func (r *record) hold(now time.Time, why string, hold time.Duration) (changed bool) {
	if len(r.Members) == 0 {
		r.Detail = why
		return false
	}
	if r.Until.IsZero() {
		r.Until = now.Add(hold)
	}
	if now.Before(r.Until) {
		return r.keep(now, Held, why)
	}
	r.Members, r.parts = nil, nil
	r.enter(now, Unresolved)
	r.Detail = why
	return true
}

// keep leaves the members as they are, if there are any.
func (r *record) keep(now time.Time, s State, why string) (changed bool) {
	r.Detail = why
	switch {
	case len(r.Members) == 0:
		return false
	case s == Stale && r.State == Held:
		return false // what the server said last still stands
	}
	return r.enter(now, s)
}

func (r *record) enter(now time.Time, s State) (changed bool) {
	if s != Held {
		r.Until = time.Time{}
	}
	if r.State == s {
		return false
	}
	r.State, r.Since = s, now
	return true
}

// After a failure the next lookup comes soon, then less and less so, but no less
// often than an answer would have been renewed: whoever asks for a TTL of a second
// wants to know within seconds that the server is back.
const (
	firstRetry    = 250 * time.Millisecond
	leastLastWait = time.Second
	mostLastWait  = 5 * time.Second
)

// delay returns how long to wait before the next lookup; draw is in [0, 1).
func (r *record) delay(now time.Time, limits Limits, draw float64) time.Duration {
	if r.fails > 0 {
		last := min(max(r.TTL, limits.MinTTL, leastLastWait), mostLastWait)
		d := min(firstRetry<<min(r.fails-1, 16), last)
		return d - time.Duration(draw*float64(d)/4)
	}
	// A tenth more than the TTL: a server that counts it down has let go by then.
	d := r.TTL + time.Duration(draw*float64(r.TTL)/10)
	if r.State == Held {
		d = min(d, max(r.Until.Sub(now), firstRetry))
	}
	return d
}

// distinct sorts members; of those with one address and port the one of the
// lowest priority stays.
func distinct(members []Member) []Member {
	slices.SortFunc(members, compareMembers)
	seen := map[Member]bool{}
	return slices.DeleteFunc(members, func(m Member) bool {
		at := Member{Addr: m.Addr, Port: m.Port}
		again := seen[at]
		seen[at] = true
		return again
	})
}

// oneLine is the text of joined errors, each once.
func oneLine(err error) string {
	var texts []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			texts = append(texts, oneLine(e))
		}
	} else {
		return err.Error()
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	const most = 4
	out := ""
	for i, t := range texts {
		switch {
		case i == most:
			return fmt.Sprintf("%s; and %d more", out, len(texts)-most)
		case i > 0:
			out += "; "
		}
		out += t
	}
	return out
}
