// Package health finds out which backends are fit for new connections.
//
// A Monitor probes actively: one goroutine a target, a Prober that asks one
// question over one socket, a Streak that turns answers into up or down.
//
//	m := health.NewMonitor(func(key string, up bool, st health.Status) { ... }, nil)
//	m.Set(targets) // again after every reload; targets that stay keep their state
//	defer m.Close()
//
// An Outlier learns passively: it is told how real connections fared and ejects,
// for a while, a backend whose connects fail in a row. The two know nothing of
// each other and nothing of pools; each has one verdict and one callback.
package health

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Spec says how one target is checked. It is a plain value; config fills in the
// defaults.
type Spec struct {
	Type string // a word of Checks, or AllOf

	Interval     time.Duration // between the starts of two probes, > 0
	FastInterval time.Duration // while the verdict is open or changing; 0 = Interval
	DownInterval time.Duration // while down; 0 = Interval
	Timeout      time.Duration // of a whole probe, connecting included, > 0

	Rise, Fall  int  // consecutive successes to go up, failures to go down; below 1 counts as 1
	Port        int  // 0 = the target's own; of no meaning to a unix socket
	InitialDown bool // before the first verdict: down rather than up

	Source netip.Addr // local address; the zero value leaves it to the kernel. Not for unix sockets
	// Proxy is "v1" or "v2" for a PROXY header UNKNOWN or LOCAL that goes first; "" is
	// none. Datagrams have none, and connections to Port: it belongs to the service
	// and not to another one beside it.
	Proxy string

	TLS    TLS      // of type tls, and of others that are told to use TLS
	HTTP   HTTP     // of type http
	GRPC   GRPC     // of type grpc
	Expect []Step   // of type expect
	UDP    Datagram // of type udp
	SMTP   SMTP     // of type smtp
	Exec   Command  // of type exec
	All    []Spec   // of type AllOf; of each counts what it asks: not when, nor Source and Proxy

	DNS      DNSQuery // of type dns
	Postgres Postgres // of type postgres
	MySQL    MySQL    // of type mysql
	Redis    Redis    // of type redis
}

// TLS says how a check that speaks TLS shakes hands.
type TLS struct {
	ServerName string   // sent, and verified; "" = the host of the address, which is sent if it is a name
	ALPN       []string // offered; the backend must choose one of them. Of type tls only: others know their own
	NoVerify   bool     // take any certificate
	CA         string   // file of PEM certificates to verify against; "" = the system's
}

// AllOf is the type of a Spec whose All must all be passed. It is no word of the
// configuration.
const AllOf = "all"

// NewProber makes the prober of one type; address has Spec.Port in it already.
type NewProber func(s Spec, network, address string) Prober

// Check is what the rest of the house has to know of a type of checks. Its record stands
// with its prober, in probe_NAME.go.
type Check struct {
	Word string    // that names it in the configuration
	New  NewProber // nil of none, whose target is always up

	Fails     []Reason        // the reasons it can give, but for those of TLS and for ROLE
	Datagrams bool            // it asks in datagrams, which no unix socket takes
	TLS       func(Spec) bool // whether it shakes hands as Spec.TLS says; nil = never
}

// Checks is the whole list, in the order in which they are documented.
var Checks = []Check{
	tcpCheck, tlsCheck, httpCheck, grpcCheck, expectCheck, udpCheck, smtpCheck, execCheck,
	dnsCheck, postgresCheck, mysqlCheck, redisCheck,
	{Word: "none"},
}

// check returns the record of the type, if there is one.
func (s Spec) check() (c Check, ok bool) {
	for _, c := range Checks {
		if c.Word == s.Type {
			return c, true
		}
	}
	return Check{}, false
}

// What checks can fail with that only connect, that read an answer, and that have a status
// to look at in it. The capacity of each is its length, so that one is never the start of
// two others.
var (
	connecting = []Reason{L4CON, L4TOUT}
	reading    = []Reason{L4CON, L4TOUT, L7RSP, L7TOUT}
	asking     = []Reason{L4CON, L4TOUT, L7RSP, L7STS, L7TOUT}
)

// Reasons lists why the check can fail. ROLE is not among them: a server with the other
// role is on standby.
func (s Spec) Reasons() []Reason {
	can := map[Reason]bool{}
	for _, one := range append([]Spec{s}, s.All...) {
		c, _ := one.check()
		for _, r := range c.Fails {
			can[r] = true
		}
		if one.UsesTLS() {
			can[L6RSP], can[L6TOUT] = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(Reasons), func(r Reason) bool { return !can[r] })
}

// UsesTLS reports whether the check shakes hands.
func (s Spec) UsesTLS() bool {
	c, _ := s.check()
	return c.TLS != nil && c.TLS(s)
}

// Datagrams reports whether the check asks in datagrams.
func (s Spec) Datagrams() bool {
	c, _ := s.check()
	return c.Datagrams
}

// Prober returns what probes the address as s says; network and address are
// net.Dialer's ("tcp" and "10.0.0.1:5432", or "unix" and "/path"). It is nil for
// type none and panics for a type that is not in Checks.
func (s Spec) Prober(network, address string) Prober {
	c, ok := s.check()
	switch {
	case s.Type == AllOf:
		return newAllProber(s, network, address)
	case !ok:
		panic("health: no check of type " + strconv.Quote(s.Type))
	case c.New == nil:
		return nil
	}
	return c.New(s, network, s.address(network, address))
}

// address is where the probe goes: s.Port replaces the target's own.
func (s Spec) address(network, address string) string {
	if s.Port == 0 || network == "unix" {
		return address
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address // dialling it says what is wrong
	}
	return net.JoinHostPort(host, strconv.Itoa(s.Port))
}

// InitiallyUp is the state of a target before its first verdict. It is what a
// pool's new backend should start with, unless the Monitor knows its key.
func (s Spec) InitiallyUp() bool { return !s.InitialDown || s.Type == "none" }

// interval is the time from the start of one probe to the start of the next.
func (s Spec) interval(up, turning bool) time.Duration {
	switch {
	case turning && s.FastInterval > 0:
		return s.FastInterval
	case !turning && !up && s.DownInterval > 0:
		return s.DownInterval
	}
	return s.Interval
}

// Target is one address to be checked.
type Target struct {
	// Key is the identity: a target whose Key was there before keeps its state
	// whatever else has changed.
	Key string

	Network, Address string // net.Dialer's words, see Spec.Prober
	Spec             Spec
}

// sameQuestion reports whether the answers of a probe of t also say something
// about o: same place, same check. Intervals and thresholds do not matter.
func (t Target) sameQuestion(o Target) bool {
	return t.Network == o.Network && t.Address == o.Address &&
		reflect.DeepEqual(t.Spec.question(), o.Spec.question())
}

// question is s without what only says when to ask, and what to make of the
// answers.
func (s Spec) question() Spec {
	s.Interval, s.FastInterval, s.DownInterval, s.Timeout = 0, 0, 0, 0
	s.Rise, s.Fall, s.InitialDown = 0, 0, false
	return s
}
