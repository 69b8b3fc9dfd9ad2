package config

import (
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// udpKeys are the keys of a service that concern datagrams.
func udpKeys(u *udp.Spec) []key {
	return []key{
		duration("idle", "30s", &u.Idle, time.Millisecond, year),
		number("replies", "0", &u.Replies, 0, 1_000_000),
		boolean("retry", "true", &u.Retry),
		count("max_sessions", "0", &u.MaxSessions),
		boolean("spray", "false", &u.Spray),
	}
}

// streamKeys are the keys of a service that protocol: udp has no use for.
var streamKeys = []string{"timeouts", "keepalive", "buffer", "retries", "proxy_protocol", "sni", "tls", "starttls", "max_connections"}

// finishProtocol keeps what belongs to the protocol of the service, and refuses
// what belongs to the other one.
func (s *service) finishProtocol() {
	if s.protocol == l4.TCP {
		if s.gives("udp") {
			s.problem([]string{"udp", "protocol"}, "has no effect with protocol: tcp; set protocol: udp, or remove it")
		}
		s.udp = udp.Spec{}
		return
	}
	for _, k := range streamKeys {
		right, isFor := map[string]string{
			"timeouts":        "write udp: {idle: ...} for how long a session may be silent, or remove it",
			"max_connections": "write udp: {max_sessions: ...}, or remove it",
		}[k]
		switch {
		case !s.gives(k):
		case isFor:
			s.problem([]string{k, "protocol"}, "is for connections, of which protocol: udp has none; %s", right)
		default:
			s.problem([]string{k, "protocol"}, "has no effect with protocol: udp; set protocol: tcp, or remove it")
		}
	}
	u := &s.udp
	u.Freebind = s.tcp.Freebind
	s.tcp = tcp.Spec{}
	if u.Replies == 0 && !u.Spray && s.gives("udp.retry") && !s.refused("udp.replies") {
		s.problem([]string{"udp.retry"}, "has no effect without replies, which say when a request is answered; write replies: 1 beside it, or remove it")
	}
	u.Retry = u.Retry && u.Replies > 0 && !u.Spray
	if u.Spray {
		for _, k := range []string{"udp.idle", "udp.replies", "udp.retry", "udp.max_sessions"} {
			if s.gives(k) {
				s.problem([]string{k, "udp.spray"}, "has no effect with spray: true, which keeps no sessions; remove it")
			}
		}
		if s.gives("limits.per_source") {
			s.problem([]string{"limits.per_source", "udp.spray"}, "has no effect with spray: true, which keeps no sessions; write source_rate, or remove it")
		}
	}
}

// finishPools applies the rules that concern a service together with the pools it
// uses.
func (s *service) finishPools(pools poolsByName) {
	for _, name := range s.Pools() {
		p := pools.of[name]
		switch {
		case p == nil: // reported as such
		case s.protocol == l4.UDP:
			s.finishUDPPool(p)
		case p.SendProxy == "v2-each":
			p.problem([]string{"send_proxy"}, "is a header before each datagram, and service %s with protocol: tcp uses the pool; write v2", s.Name)
		}
	}
	if s.SNI != nil {
		s.finishSNIPools(pools)
	}
}

// finishUDPPool refuses what a pool is told to do and cannot do with datagrams.
func (s *service) finishUDPPool(p *pool) {
	p.UDP = true
	switch {
	case p.SendProxy == "v1":
		p.problem([]string{"send_proxy"}, "knows no UDP, and service %s with protocol: udp uses the pool; write v2 or v2-each, or off", s.Name)
	case p.SendProxy == "v2" && s.udp.Spray:
		p.problem([]string{"send_proxy"}, "is a header before the first datagram of a session, and service %s with spray: true has none; write v2-each, or off", s.Name)
	}
	if p.TLS != nil {
		p.problem([]string{"tls"}, "is not for datagrams, and service %s with protocol: udp uses the pool; give it a pool of its own", s.Name)
	}
	if p.Transparent && s.udp.Spray {
		p.problem([]string{"source"}, "client is for sessions, and service %s with spray: true has none; give it a pool of its own", s.Name)
	}
	for key, on := range map[string]bool{
		"authority": p.ProxyTLVs.Authority, "alpn": p.ProxyTLVs.ALPN, "ssl": p.ProxyTLVs.SSL, "unique_id": p.ProxyTLVs.UniqueID,
	} {
		if key = "proxy_tlvs." + key; on && p.gives(key) {
			p.problem([]string{key}, "is not for datagrams, and service %s with protocol: udp uses the pool; remove it", s.Name)
		}
	}
	if p.gives("replay") && p.Replay > 0 {
		p.problem([]string{"replay"}, "is not for datagrams, and service %s with protocol: udp uses the pool; give it a pool of its own", s.Name)
	}
	if b := p.socket; b != nil {
		p.problem([]string{"backends"}, "the socket %s at %s is for connections, and service %s with protocol: udp uses the pool; give it a pool of its own", b.path(), b.at, s.Name)
	}
}
