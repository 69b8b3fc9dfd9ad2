package main

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/plural"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// front says what a client has to begin with.
func (e *explanation) front(s config.Service) {
	if s.TCP.StartTLS {
		e.line("begins with", "PostgreSQL's SSLRequest, which is granted, then TLS")
	}
	if t := s.TLS; t != nil {
		e.line("TLS", "ends here: %s, %s or later%s", plural.Of(len(t.Certificates), "certificate"), tls.VersionName(t.MinVersion), agreed(t.ALPN))
		e.line("", "at most %s under way at once", plural.Of(s.TCP.MaxHandshakes, "handshake"))
		switch {
		case t.ClientCA == "":
		case t.ClientOptional:
			e.line("", "a client may have a certificate; if so, of an authority in %s", t.ClientCA)
		default:
			e.line("", "a client must have a certificate of an authority in %s", t.ClientCA)
		}
	}
	if s.TLS != nil || s.SNI != nil || s.TCP.Proxy.Accept != 0 {
		e.line("first bytes", "within %s", config.Written(s.TCP.FirstBytes))
	}
}

// budgeted is the bound of all retries.
const budgeted = "as far as the pool's retry budget goes"

// connections says how they are made and when they end.
func (e *explanation) connections(t tcp.Spec) {
	e.line("timeouts", "%s for a connect, %s for all connects of a client", config.Written(t.Connect), config.Written(t.ConnectTotal))
	if e.on("timeouts.idle", t.Idle > 0) {
		e.line("", "%s without a byte in either direction", config.Written(t.Idle))
	}
	e.line("", "%s without progress after one side has ended", config.Written(t.HalfClose))
	if e.on("retries", t.Retries > 0) {
		e.line("retries", "%s after a failed connect, %s", plural.Of(t.Retries, "further backend"), budgeted)
	}
	e.keepalive(t.Keepalive)
	if e.on("buffer", t.Buffer > 0) {
		e.line("buffer", "%s in each place where they wait, when many connections are blocked", plural.Of(t.Buffer, "byte"))
	}
}

// keepalive says when a peer that has vanished counts as dead.
func (e *explanation) keepalive(k tcp.Keepalive) {
	label := "keepalive"
	if e.on("keepalive.probes", k.Probes > 0) {
		silence := k.Idle + time.Duration(k.Probes)*k.Interval
		e.line(label, "after %s of silence %s, one every %s; dead after %s without an answer",
			config.Written(k.Idle), plural.Of(k.Probes, "probe"), config.Written(k.Interval), config.Written(silence))
		label = ""
	}
	if k.Unanswered > 0 {
		e.line(label, "bytes on the way: dead after %s without an answer", config.Written(k.Unanswered))
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
		replies = " or " + plural.Of(u.Replies, "reply") + " a datagram"
	}
	if u.MaxSessions > 0 {
		limit = fmt.Sprintf("at most %d", u.MaxSessions)
	}
	e.line("sessions", "end after %s idle%s, %s", config.Written(u.Idle), replies, limit)
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
	for _, r := range s.SNI.Rules {
		e.line("", "%s%s: pool %s", r.Pattern, agreed(r.ALPN), r.Pool)
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
