package tcp

import (
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/wire"
)

// Route is a service and where its connections go. All of it is immutable.
type Route struct {
	Spec  Spec
	To    *Upstream     // where connections go; with SNI nil
	SNI   *SNI          // chooses by the ClientHello, which is forwarded; nil = no look is taken
	TLS   *tls.Config   // ends the client's TLS; nil = what comes is forwarded
	Admit *admit.Policy // nil = everybody
}

// Upstream is a pool and how its backends are connected to.
type Upstream struct {
	Pool *balance.Pool
	// Source is the source address; the zero value leaves it to the kernel.
	Source netip.Addr
	// Transparent connects from the client's address (IP_TRANSPARENT, which takes
	// CAP_NET_ADMIN) and a port of the kernel's choice. Clients that cannot appear
	// (l4.Flow.CanAppearTo) come from Source.
	Transparent bool
	Proxy       ProxyOut
	TLS         *cert.Client // nil = plain
	StartTLS    bool         // ask a PostgreSQL server for TLS first
	// Replay is how many bytes of the client are kept until the backend's first
	// one, to be sent to another backend if this one ends without it; 0 = none.
	Replay int
}

// ProxyOut says what header a connection to a backend begins with.
type ProxyOut struct {
	Version int // of the PROXY protocol, 1 or 2; 0 = no header

	// What a header of version 2 says besides the addresses.
	Authority bool       // the server name the client asked for
	ALPN      bool       // what was agreed on with it
	SSL       bool       // that, and how, it came over TLS, and its certificate's common name
	UniqueID  bool       // the client's proxy's, or else one of ours
	Custom    []wire.TLV // as they are
}

// SNI chooses an upstream by the server name, and perhaps the protocols, that a
// client's TLS asks for (RFC 6066 section 3, RFC 7301).
type SNI struct {
	exact    map[string][]SNIRule
	wildcard map[string][]SNIRule // by what follows "*"

	// Each may be nil, which closes the connection.
	Default *Upstream // asks for no name, or for one that no rule is for
	NotTLS  *Upstream // what the client sends is no ClientHello
	NoHello *Upstream // it sends nothing for timeouts.first_bytes
}

// SNIRule sends clients that ask for a name to an upstream.
type SNIRule struct {
	Name string   // in lower case; "*.example.org" is any one label before it
	ALPN []string // only those that offer one of these; empty = all
	To   *Upstream
}

// NewSNI compiles rules. Those of one name are tried in their order, an exact name
// before a wildcard.
func NewSNI(rules []SNIRule) *SNI {
	s := &SNI{exact: map[string][]SNIRule{}, wildcard: map[string][]SNIRule{}}
	for _, r := range rules {
		if suffix, ok := strings.CutPrefix(r.Name, "*"); ok {
			s.wildcard[suffix] = append(s.wildcard[suffix], r)
		} else {
			s.exact[r.Name] = append(s.exact[r.Name], r)
		}
	}
	return s
}

// find returns where a ClientHello is to go, or nil.
func (s *SNI) find(name string, offers func(string) bool) *Upstream {
	match := func(rules []SNIRule) *Upstream {
		for _, r := range rules {
			if len(r.ALPN) == 0 || slices.ContainsFunc(r.ALPN, offers) {
				return r.To
			}
		}
		return nil
	}
	if name != "" {
		if to := match(s.exact[name]); to != nil {
			return to
		}
		if i := strings.IndexByte(name, '.'); i > 0 {
			if to := match(s.wildcard[name[i:]]); to != nil {
				return to
			}
		}
	}
	return s.Default
}

// A route is a Route as a listener uses it. A reload gives the listener another
// one, and connections keep theirs.
type route struct {
	Route
	service *Service
	trusted bart.Lite // Spec.Proxy.Trusted
}

func newRoute(r Route, svc *Service) *route {
	rt := &route{Route: r, service: svc}
	for _, p := range r.Spec.Proxy.Trusted {
		rt.trusted.Insert(p)
	}
	return rt
}

// listens reports whether the client's first bytes are looked at before a backend
// is chosen.
func (r *route) listens() bool { return r.SNI != nil || r.TLS != nil }

// trusts reports whether a peer has to send a PROXY header.
func (r *route) trusts(peer netip.Addr) bool {
	return r.Spec.Proxy.Accept != 0 && r.trusted.Contains(peer)
}
