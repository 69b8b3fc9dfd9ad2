// Package resolve keeps the addresses of names up to date, and the content of
// watched files.
//
//	r := resolve.New(func(key resolve.Key, st resolve.Status) { ... })
//	r.Set([]resolve.Target{{Key: resolve.Key{Owner: "pg", Name: "db.internal"}, Limits: ...}})
//
// A name is asked for again when its answer has expired. Trouble never takes
// addresses away: a server that is silent, broken or unwilling says nothing about
// a name, and the last good set stays for as long as that lasts (the idea of RFC
// 8767, serving stale data). Only a server's word that there is no such name
// does, and only if it still stands after a hold time. Of the two families of
// addresses each speaks for itself: "no such name" for one removes none of the other.
//
// Limits: no search domains, no DNSSEC validation, no cache shared between names;
// the server is expected to follow CNAME records. A lookup is a few packets every
// so often, so each query has a socket of its own and none outlives its answer.
package resolve

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/poise-lb/poise/internal/keyed"
)

// Kind is what is looked up about a name.
type Kind uint8

const (
	Host Kind = iota // its addresses: A and AAAA records
	SRV              // its SRV records and the addresses of their targets
)

// String returns "host" or "srv".
func (k Kind) String() string {
	if k == SRV {
		return "srv"
	}
	return "host"
}

// Key is the identity of a name under watch: what is known of it stays for as
// long as each Set has the key.
type Key struct {
	Owner string // whoever wants to know; two owners of a name do not share anything
	Kind  Kind
	Name  string // without the final dot; letter case does not matter to servers
}

// Limits bound how an answer is used.
type Limits struct {
	// MinTTL and MaxTTL are the least and the longest time for which an answer
	// is used before the name is asked for again, whatever its TTL.
	MinTTL, MaxTTL time.Duration
	// Hold is how long members stay although a server says that there are none.
	Hold time.Duration
}

// Target is a name to watch.
type Target struct {
	Key
	// Servers are tried in turn; none means those of /etc/resolv.conf, and that
	// /etc/hosts comes first for names of kind Host.
	Servers []netip.AddrPort
	Limits
}

func (t Target) equal(u Target) bool {
	return t.Key == u.Key && t.Limits == u.Limits && slices.Equal(t.Servers, u.Servers)
}

// Member is one address of a name.
type Member struct {
	Addr netip.Addr // of one host; never a 4-in-6 address
	// The following are of kind SRV only, and as in RFC 2782: the lowest Priority
	// comes first, Weight is the share within it, and 0 is a very small one.
	Port, Weight, Priority uint16
}

func compareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Weight, b.Weight))
}

// Resolver watches a set of names.
type Resolver struct {
	// Set once.
	onChange func(Key, Status)
	lookup   func(context.Context, Target) answer // client.lookup but for tests
	rand     func() float64                       // in [0, 1); safe for concurrent use

	names keyed.Set[Key, *name]
}

// New returns a resolver without names. onChange is told every change of a
// name's Status.State or Members, in order per key, and when the first lookup of a
// name, or of a changed target, has led to no member. It runs on the name's
// goroutine, so it must not block long; it must not call Set or Close, nor wait
// for a lock that a caller of theirs holds, for they wait for it. It may call
// Status.
func New(onChange func(Key, Status)) *Resolver {
	c := newClient("/etc/resolv.conf", "/etc/hosts")
	return &Resolver{onChange: onChange, lookup: c.lookup, rand: rand.Float64}
}

// Set makes these the names that are watched, exactly these and each by one
// goroutine. A name whose Key was there before keeps its state; if anything else
// about it differs, other servers for instance, it is asked for anew at once.
// When Set returns, onChange will not speak of removed names again; a lookup of one
// that is under way ends by itself. A Key that comes twice counts once, the first
// time. After Close, Set does nothing.
func (r *Resolver) Set(targets []Target) {
	keys := make([]Key, len(targets))
	for i, t := range targets {
		keys[i] = t.Key
	}
	want := func(i int) Target {
		t := targets[i]
		t.Servers = slices.Clone(t.Servers)
		return t
	}
	r.names.Replace(
		keys,
		func(i int, l *keyed.Life) *name { return newName(r, l, want(i)) },
		func(i int, n *name) { n.update(want(i)) },
	)
}

// Settle waits until each name has been looked up once, be it in vain, or until
// ctx ends.
func (r *Resolver) Settle(ctx context.Context) {
	for _, n := range r.names.All() {
		select {
		case <-n.asked:
		case <-ctx.Done():
			return
		}
	}
}

// Status returns what is known about a name, and whether it is watched.
func (r *Resolver) Status(key Key) (Status, bool) {
	n, ok := r.names.Get(key)
	if !ok {
		return Status{}, false
	}
	return n.snapshot(), true
}

// Close ends all lookups and waits for them.
func (r *Resolver) Close() { r.names.Close() }
