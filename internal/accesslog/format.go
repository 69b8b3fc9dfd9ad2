package accesslog

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/poise-lb/poise/l4"
)

// The formats.
const (
	// TCPLog is one line in the field order of HAProxy's "option tcplog", so that
	// what reads HAProxy's log reads this one:
	//
	//	192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db2 0.012/0.310/5007.118 212 --/ok 3/2/2/1/0 0/0
	//
	// The fields, separated by one space:
	//
	//  1. client: address and port; IPv6 without brackets, the port is what
	//     follows the last colon
	//  2. [accept date]: when the connection was accepted, local time
	//  3. service
	//  4. pool/backend: <NOSRV> when no backend was ever connected
	//  5. Tw/Tc/Tt: milliseconds with three decimals until a backend was chosen,
	//     of the connect that succeeded, and in all; -1 = never reached
	//  6. bytes sent to the client
	//  7. termination: HAProxy's two letters, a slash, and the word of l4.Outcome;
	//     one field, so that those after it stay in place. The letters say who
	//     and when (see termination), the word says what: "CD/client_reset"
	//  8. actconn/svcconn/poolconn/bkconn/retries: connections open at the end,
	//     this one included, of the process, the service, the pool, the backend;
	//     and how many further backends were tried
	//  9. 0, and the place in the pool's queue when the connection joined it, 1 =
	//     next; 0/0 = never queued. (HAProxy's first one is of a backend's own
	//     queue, of which there is none.)
	//
	// In a name, bytes that are not printable ASCII and spaces are written as
	// #XX (hexadecimal), as HAProxy does.
	TCPLog = "tcplog"

	// JSON is one object a line:
	//
	//	time                         when the connection was accepted, RFC 3339 with nanoseconds
	//	service, pool, backend       backend is "" when none was ever connected
	//	proto                        tcp | udp
	//	client, client_port          address and port of the client
	//	vip, vip_port                address and port it connected to
	//	wait_ms                      until a backend was chosen; like all times: milliseconds
	//	                             with three decimals, -1 = never reached
	//	connect_ms                   the connect that succeeded, alone
	//	first_byte_ms                from then to the backend's first byte
	//	total_ms                     until the last side closed
	//	bytes_in, bytes_out          from the client, to the client
	//	retries                      further backends tried after a failed connect
	//	queue_pos                    place in the pool's queue when it joined, 1 = next,
	//	                             0 = never queued
	//	strategy                     "a" or "b" of the pool's A/B comparison, "" without
	//	outcome                      the word of l4.Outcome
	//	termination                  HAProxy's two letters
	//	by                           who ended it: client | backend | proxy | nobody
	//	conns, service_conns, pool_conns, backend_conns
	//	                             connections open at the end, this one included
	JSON = "json"
)

var appenders = map[string]appender{TCPLog: appendTCPLog, JSON: appendJSON}

// haproxyDate is HAProxy's accept date.
const haproxyDate = "02/Jan/2006:15:04:05.000"

func appendTCPLog(b []byte, s *l4.Session) []byte {
	b = appendAddr(b, s.Flow.Client.Addr(), appendEscaped)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(s.Flow.Client.Port()), 10)
	b = append(b, " ["...)
	b = s.Start.AppendFormat(b, haproxyDate)
	b = append(b, "] "...)
	b = appendName(b, s.Service)
	b = append(b, ' ')
	b = appendName(b, s.Pool)
	b = append(b, '/')
	if s.Backend == "" {
		b = append(b, "<NOSRV>"...)
	} else {
		b = appendEscaped(b, s.Backend)
	}
	b = append(b, ' ')
	b = appendMillis(b, s.Wait)
	b = append(b, '/')
	b = appendMillis(b, s.Connect)
	b = append(b, '/')
	b = appendMillis(b, s.Total)
	b = append(b, ' ')
	b = strconv.AppendUint(b, s.BytesOut, 10)
	why, phase := termination(s)
	b = append(b, ' ', why, phase, '/')
	b = append(b, s.Outcome.String()...)
	b = append(b, ' ')
	for _, n := range [...]int64{s.ActConn, s.SvcConn, s.PoolConn, s.BackendConn} {
		b = strconv.AppendInt(b, n, 10)
		b = append(b, '/')
	}
	b = strconv.AppendInt(b, int64(s.Retries), 10)
	b = append(b, " 0/"...)
	b = strconv.AppendInt(b, int64(s.QueuePos), 10)
	return append(b, '\n')
}

func appendJSON(b []byte, s *l4.Session) []byte {
	b = append(b, `{"time":"`...)
	b = s.Start.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","service":`...)
	b = appendQuoted(b, s.Service)
	b = append(b, `,"pool":`...)
	b = appendQuoted(b, s.Pool)
	b = append(b, `,"backend":`...)
	b = appendQuoted(b, s.Backend)
	b = append(b, `,"proto":`...)
	b = appendQuoted(b, s.Flow.Proto.String())
	b = append(b, `,"client":"`...)
	b = appendAddr(b, s.Flow.Client.Addr(), appendUnquoted)
	b = appendCount(b, `","client_port":`, uint64(s.Flow.Client.Port()))
	b = append(b, `,"vip":"`...)
	b = appendAddr(b, s.Flow.VIP.Addr(), appendUnquoted)
	b = appendCount(b, `","vip_port":`, uint64(s.Flow.VIP.Port()))
	b = append(b, `,"wait_ms":`...)
	b = appendMillis(b, s.Wait)
	b = append(b, `,"connect_ms":`...)
	b = appendMillis(b, s.Connect)
	b = append(b, `,"first_byte_ms":`...)
	b = appendMillis(b, s.FirstByte)
	b = append(b, `,"total_ms":`...)
	b = appendMillis(b, s.Total)
	b = appendCount(b, `,"bytes_in":`, s.BytesIn)
	b = appendCount(b, `,"bytes_out":`, s.BytesOut)
	b = append(b, `,"retries":`...)
	b = strconv.AppendInt(b, int64(s.Retries), 10)
	b = append(b, `,"queue_pos":`...)
	b = strconv.AppendInt(b, int64(s.QueuePos), 10)
	b = append(b, `,"strategy":`...)
	b = appendQuoted(b, s.Strategy)
	b = append(b, `,"outcome":"`...)
	b = append(b, s.Outcome.String()...)
	why, phase := termination(s)
	b = append(b, `","termination":"`...)
	b = append(b, why, phase)
	b = append(b, `","by":"`...)
	b = append(b, sideName(s.By)...)
	b = append(b, `","conns":`...)
	b = strconv.AppendInt(b, s.ActConn, 10)
	b = append(b, `,"service_conns":`...)
	b = strconv.AppendInt(b, s.SvcConn, 10)
	b = append(b, `,"pool_conns":`...)
	b = strconv.AppendInt(b, s.PoolConn, 10)
	b = append(b, `,"backend_conns":`...)
	b = strconv.AppendInt(b, s.BackendConn, 10)
	return append(b, "}\n"...)
}

func appendCount(b []byte, key string, n uint64) []byte {
	return strconv.AppendUint(append(b, key...), n, 10)
}

// appendMillis appends d in milliseconds, cut to microseconds; -1 if it never
// happened.
func appendMillis(b []byte, d time.Duration) []byte {
	if d < 0 {
		return append(b, "-1"...)
	}
	us := d.Microseconds()
	b = strconv.AppendInt(b, us/1000, 10)
	us %= 1000
	return append(b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
}

// appendAddr appends a bare; a zone goes through escape, for it is an
// interface's name, which may hold almost any byte.
func appendAddr(b []byte, a netip.Addr, escape func([]byte, string) []byte) []byte {
	switch {
	case !a.IsValid():
		return append(b, '-')
	case a.Zone() == "":
		return a.AppendTo(b)
	}
	b = a.WithZone("").AppendTo(b)
	return escape(append(b, '%'), a.Zone())
}

// appendName is appendEscaped with a dash for nothing, so that fields can be
// counted.
func appendName(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendEscaped(b, s)
}

const hex = "0123456789ABCDEF"

// appendEscaped appends s with all but printable, non-space ASCII as #XX.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '#' {
			b = append(b, c)
		} else {
			b = append(b, '#', hex[c>>4], hex[c&15])
		}
	}
	return b
}

func appendQuoted(b []byte, s string) []byte {
	return append(appendUnquoted(append(b, '"'), s), '"')
}

// appendUnquoted appends s as the inside of a JSON string (RFC 8259 section 7);
// what is not UTF-8 becomes U+FFFD.
func appendUnquoted(b []byte, s string) []byte {
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, `\u00`...)
			b = append(b, hex[r>>4], hex[r&15])
		default: // ranging over what is not UTF-8 yields U+FFFD
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

func sideName(s l4.Side) string {
	switch s {
	case l4.Client:
		return "client"
	case l4.Backend:
		return "backend"
	case l4.Proxy:
		return "proxy"
	}
	return "nobody"
}
