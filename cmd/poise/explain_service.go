package main

import (
	"crypto/tls"
	"fmt"
	"strconv"
	"time"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// front says what a client has to begin with.
func (e *explanation) front(s config.Service) {
	if s.TCP.StartTLS {
		e.line("begins with", "%s", e.of("starttls", "PostgreSQL's SSLRequest, which is granted, then TLS"))
	}
	if t := s.TLS; t != nil {
		e.line("TLS", "ends here: %s or later%s", e.of("tls.min_version", tls.VersionName(t.MinVersion)), agreed(e.items("tls.alpn", t.ALPN)))
		for i, c := range t.Certificates {
			of := func(key, file string) string { return e.of(fmt.Sprintf("tls.certificates[%d].%s", i, key), file) }
			staple := ""
			if c.OCSP != "" {
				staple = ", OCSP response " + of("ocsp", c.OCSP)
			}
			e.line("", "certificate %s, key %s%s", of("cert", c.Cert), of("key", c.Key), staple)
		}
		e.line("", "at most %s under way at once", e.counted("tls.max_handshakes", s.TCP.MaxHandshakes, "handshake"))
		if t.TicketKeys == "" {
			e.line("", "clients resume with keys of this process, new ones every 8h")
		} else {
			e.line("", "clients resume with the keys in %s", e.of("tls.ticket_keys", t.TicketKeys))
		}
		switch ca := e.of("tls.client_ca", t.ClientCA); {
		case t.ClientCA == "":
		case t.ClientOptional:
			e.line("", "a client may have a certificate; if so, of an authority in %s", ca)
		default:
			e.line("", "a client must have a certificate of an authority in %s", ca)
		}
	}
	if s.TLS != nil || s.SNI != nil || s.TCP.Proxy.Accept != 0 {
		e.line("first bytes", "within %s", e.of("timeouts.first_bytes", config.Written(s.TCP.FirstBytes)))
	}
}

// budgeted is the bound of all retries.
const budgeted = "as far as the pool's retry budget goes"

// connections says how they are made and when they end.
func (e *explanation) connections(t tcp.Spec) {
	e.line("timeouts", "%s for a connect, %s for all connects of a client",
		e.of("timeouts.connect", config.Written(t.Connect)), e.of("timeouts.connect_total", config.Written(t.ConnectTotal)))
	if e.on("timeouts.idle", t.Idle > 0) {
		e.line("", "%s without a byte in either direction", e.of("timeouts.idle", config.Written(t.Idle)))
	}
	e.line("", "%s without progress after one side has ended", e.of("timeouts.half_close", config.Written(t.HalfClose)))
	if e.on("retries", t.Retries > 0) {
		e.line("retries", "%s after a failed connect, %s", e.counted("retries", t.Retries, "further backend"), budgeted)
	}
	e.keepalive(t.Keepalive)
	if e.on("buffer", t.Buffer > 0) {
		e.line("buffer", "%s in each place where they wait, when many connections are blocked", e.counted("buffer", t.Buffer, "byte"))
	}
}

// keepalive says when a peer that has vanished counts as dead.
func (e *explanation) keepalive(k tcp.Keepalive) {
	label := "keepalive"
	if e.on("keepalive.probes", k.Probes > 0) {
		dead := ""
		if !e.hides("keepalive.idle", "keepalive.interval", "keepalive.probes") {
			dead = fmt.Sprintf("; dead after %s without an answer", config.Written(k.Idle+time.Duration(k.Probes)*k.Interval))
		}
		e.line(label, "after %s of silence %s, one every %s%s", e.of("keepalive.idle", config.Written(k.Idle)),
			e.counted("keepalive.probes", k.Probes, "probe"), e.of("keepalive.interval", config.Written(k.Interval)), dead)
		label = ""
	}
	if k.Unanswered > 0 {
		e.line(label, "bytes on the way: dead after %s without an answer", e.of("keepalive.unanswered", config.Written(k.Unanswered)))
	}
}

// datagrams says what becomes of them.
func (e *explanation) datagrams(u udp.Spec) {
	if u.Spray {
		e.line("sessions", "none: each datagram by itself, nothing comes back")
		return
	}
	replies, limit := "", "no limit of their own"
	if e.on("udp.replies", u.Replies > 0) {
		replies = fmt.Sprintf(" or %s a datagram", e.counted("udp.replies", u.Replies, "reply"))
	}
	if u.MaxSessions > 0 {
		limit = "at most " + e.of("udp.max_sessions", strconv.Itoa(u.MaxSessions))
	}
	e.line("sessions", "end after %s idle%s, %s", e.of("udp.idle", config.Written(u.Idle)), replies, limit)
	if e.on("udp.retry", u.Retry) {
		e.line("retries", "once: what a backend has refused, or not answered when it goes down, %s", budgeted)
	}
}

// destinations says where clients go.
func (e *explanation) destinations(s config.Service) {
	if s.SNI == nil {
		e.line("goes to", "pool %s", s.Pool)
		return
	}
	e.line("goes to", "by the name in the client's TLS, which is forwarded as it is:")
	for i, r := range s.SNI.Rules {
		e.line("", "%s%s: pool %s", r.Pattern, agreed(e.file.ToldRule(s, i)), r.Pool)
	}
	for _, other := range []struct{ who, pool string }{
		{"any other name, or none", s.SNI.Default}, {"no TLS", s.SNI.NotTLS}, {"silence", s.SNI.NoHello},
	} {
		where := "closed"
		if other.pool != "" {
			where = "pool " + other.pool
		}
		e.line("", "%s: %s", other.who, where)
	}
}
