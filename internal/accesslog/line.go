package accesslog

import (
	"strconv"
	"time"

	"github.com/poise-lb/poise/l4"
)

// The formats of one line of fields, separated by one space.
const (
	// TCPLog is the line of HAProxy's "option tcplog", to the letter, so that what
	// reads HAProxy's log reads this one:
	//
	//	192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db2 0/0/5007 212 CD 3/2/2/1/0 0/0
	//
	//  1. client: address and port, those a PROXY header stated, if one did; IPv6
	//     without brackets, the port is what follows the last colon
	//  2. [accept date]: when the connection was accepted, local time
	//  3. service
	//  4. pool/backend: <NOSRV> when no backend was ever connected; the service in the
	//     pool's place when none was chosen
	//  5. Tw/Tc/Tt: whole milliseconds until a backend was chosen, of the connect that
	//     succeeded, and in all; -1 = never reached
	//  6. bytes sent to the client
	//  7. termination: two letters, who and when (see termination)
	//  8. actconn/svcconn/poolconn/bkconn/retries: connections open at the end,
	//     this one included, of the process, the service, the pool, the backend;
	//     and how many further backends were tried, with HAProxy's plus sign, which says
	//     that they were further ones
	//  9. 0, and the place in the pool's queue when the connection joined it, 1 =
	//     next; 0/0 = never queued. (HAProxy's first one is of a backend's own
	//     queue, of which there is none.)
	//
	// In a name, bytes that are not printable ASCII and spaces are written as
	// #XX (hexadecimal), as HAProxy does. UDP sessions have the same line.
	TCPLog = "tcplog"

	// Poise is the same line for people:
	//
	//	192.0.2.7:51234 [06/Feb/2009:12:14:14.655] postgres pg/db2 0.012/0.310/5007.118 212 CD/client_reset 3/2/2/1/0 0/0
	//
	// Its times are milliseconds with three decimals, because most connects within a
	// data centre take less than one; the letters are followed by a slash and the word of
	// l4.Outcome; a pool that is not known is a dash; retries have no sign.
	//
	// What is known of TLS, datagrams and the proxy before this one has no field in
	// either and is in JSON only.
	Poise = "poise"
)

// haproxyDate is HAProxy's accept date.
const haproxyDate = "02/Jan/2006:15:04:05.000"

func appendTCPLog(b []byte, s *l4.Session) []byte {
	pool := s.Pool
	if pool == "" {
		pool = s.Service
	}
	b = appendBeginning(b, s, pool, appendWholeMillis)
	b = appendConns(b, s)
	if s.Retries > 0 {
		b = append(b, '+')
	}
	return appendEnd(b, s)
}

func appendPoise(b []byte, s *l4.Session) []byte {
	b = appendBeginning(b, s, s.Pool, appendMillis)
	b = append(b, '/')
	b = append(b, s.Outcome.String()...)
	b = appendConns(b, s)
	return appendEnd(b, s)
}

// appendBeginning appends all up to the two letters.
func appendBeginning(b []byte, s *l4.Session, pool string, millis func([]byte, time.Duration) []byte) []byte {
	b = appendAddr(b, s.Flow.Client.Addr(), appendEscaped)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(s.Flow.Client.Port()), 10)
	b = append(b, " ["...)
	b = s.Start.AppendFormat(b, haproxyDate)
	b = append(b, "] "...)
	b = appendName(b, s.Service)
	b = append(b, ' ')
	b = appendName(b, pool)
	b = append(b, '/')
	if s.Backend == "" {
		b = append(b, "<NOSRV>"...)
	} else {
		b = appendEscaped(b, s.Backend)
	}
	b = append(b, ' ')
	b = millis(b, s.Wait)
	b = append(b, '/')
	b = millis(b, s.Connect)
	b = append(b, '/')
	b = millis(b, s.Total)
	b = append(b, ' ')
	b = strconv.AppendUint(b, s.BytesOut, 10)
	why, phase := termination(s)
	return append(b, ' ', why, phase)
}

func appendConns(b []byte, s *l4.Session) []byte {
	b = append(b, ' ')
	for _, n := range [...]int64{s.ActConn, s.SvcConn, s.PoolConn, s.BackendConn} {
		b = strconv.AppendInt(b, n, 10)
		b = append(b, '/')
	}
	return b
}

func appendEnd(b []byte, s *l4.Session) []byte {
	b = strconv.AppendInt(b, int64(s.Retries), 10)
	b = append(b, " 0/"...)
	b = strconv.AppendInt(b, int64(s.QueuePos), 10)
	return append(b, '\n')
}

// appendWholeMillis appends d in milliseconds, cut; -1 if it never happened.
func appendWholeMillis(b []byte, d time.Duration) []byte {
	if d < 0 {
		return append(b, "-1"...)
	}
	return strconv.AppendInt(b, d.Milliseconds(), 10)
}
