package config

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// service is a Service while it is read.
type service struct {
	Service
	*object
	listen   []listen // nil: not given
	protocol l4.Proto
	tcp      tcp.Spec
	udp      udp.Spec
	tls      cert.Spec
	sni      sni
}

// listen is one entry of a service's list, before its range is expanded.
type listen struct {
	endpoint
	dual    bool // ":port": every address, IPv4 and IPv6
	udp     bool
	at      position
	text    string
	item    int      // in its list
	path    string   // of the key that claims it
	service *service // nil of admin.http
}

// maxListeners bounds the listeners of a configuration. Each is a socket per
// event loop.
const maxListeners = 16384

func (s *service) readListen(v *value) {
	if !v.is(list, v.listOr(`[":5432"]`)) {
		return
	}
	s.listen = []listen{}
	if len(v.items) == 0 {
		v.fail(`an empty list; write at least one address, such as [":5432"]`)
	}
	for i, item := range v.elements() {
		if !item.scalar(`"address:port"`) {
			continue
		}
		e, isName, problem := parseEndpoint(item.text, true)
		switch {
		case isName:
			item.fail(`%s has a name for a host; write an IP address of this host, or ":port" for all of them`, item.quoted())
		case problem != "":
			item.fail("%s", problem)
		case e.addr.IsMulticast():
			item.fail("%s is a multicast address; write an address of this host", e.addr)
		default:
			l := newListen(e, item)
			l.item = i
			s.listen = append(s.listen, l)
		}
	}
}

func newListen(e endpoint, v *value) listen {
	l := listen{endpoint: e, at: v.at, text: v.shown(), path: v.path}
	if !e.addr.IsValid() {
		l.addr, l.dual = netip.IPv6Unspecified(), true
	}
	return l
}

// finish applies the rules that concern several keys and completes the spec.
func (s *service) finish(pools poolsByName) {
	if s.listen == nil && !s.has("listen") {
		s.problem([]string{"listen"}, `missing; say where the service listens, such as listen: [":5432"]`)
	}
	if s.finishProtocol(); s.protocol == l4.TCP {
		s.finishTLS()
		s.finishSNI(pools)
		s.finishGreeting()
	}
	switch {
	case s.SNI != nil || s.gives("sni") && s.Pool == "":
	case s.Pool == "" && !s.has("pool"):
		s.problem([]string{"pool"}, "missing; name the pool its connections go to")
	case s.Pool != "" && pools.of[s.Pool] == nil:
		s.problem([]string{"pool"}, "there is no pool %q; define it under pools, or name another%s", s.told("pool", s.Pool), s.meantPool(s.told("pool", s.Pool), pools))
	}
	s.finishAdmission()
	s.finishEffects()
	if t := &s.tcp; t.Connect > t.ConnectTotal {
		s.problem([]string{"timeouts.connect", "timeouts.connect_total"},
			"one attempt may take %s, all together only %s; lower connect or raise connect_total",
			s.told("timeouts.connect", short(t.Connect)), s.told("timeouts.connect_total", short(t.ConnectTotal)))
	}
	s.listen = slices.Clone(s.listen) // perhaps inherited, and the path is ours
	for i := range s.listen {
		s.listen[i].path = index(join(s.path, "listen"), s.listen[i].item)
		s.listen[i].udp, s.listen[i].service = s.protocol == l4.UDP, s
	}
}

// expand turns the entries into one listener a port, in the spec of the protocol.
func (s *service) expand() {
	var all []l4.Listen
	for _, l := range s.listen {
		for port := int(l.lo); port <= int(l.hi); port++ {
			all = append(all, l4.Listen{
				Addr:   netip.AddrPortFrom(l.addr, uint16(port)),
				V6Only: l.addr.Is6() && !l.dual,
			})
		}
	}
	if s.protocol == l4.UDP {
		u := s.udp
		u.Name, u.Listen = s.Name, all
		s.UDP = &u
	} else {
		t := s.tcp
		t.Name, t.Listen = s.Name, all
		s.TCP = &t
	}
}

// readAdminHTTP stores "ip:port", or "" for off, and what it claims.
func (r *root) readAdminHTTP(dst *string) func(*value) {
	return func(v *value) {
		if !v.scalar(`"127.0.0.1:9905"`) {
			return
		}
		if v.text == "" {
			*dst, r.admin = "", nil
			return
		}
		e, isName, problem := parseEndpoint(v.text, false)
		switch {
		case strings.HasPrefix(v.text, "unix:"), strings.HasPrefix(v.text, "/"):
			v.fail(`%s is a socket in the file system, and admin.http listens on TCP alone; write an address such as "127.0.0.1:9905", and the path of a socket as admin.socket`, v.quoted())
		case isName:
			v.fail(`%s has a name for a host; write an IP address of this host, such as "127.0.0.1:9905", or "" for off`, v.quoted())
		case problem != "":
			v.fail("%s", problem)
		default:
			*dst, r.admin = v.text, []listen{newListen(e, v)}
		}
	}
}
