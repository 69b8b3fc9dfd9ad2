package accesslog

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/poise-lb/poise/l4"
)

// The format that has all there is; see also Poise and TCPLog.
const (
	// JSON is one object a line:
	//
	//	time                         when the connection was accepted, RFC 3339 with nanoseconds
	//	service, pool, backend       backend is "" when none was ever connected
	//	proto                        tcp | udp
	//	client, client_port          address and port of the client: those a PROXY header
	//	                             stated, if one did
	//	peer, peer_port              who connected and sent that header; "" and 0 = the client
	//	                             itself did
	//	unique_id                    of the connection, in PROXY headers; "" = it has none
	//	vip, vip_port                address and port it connected to
	//	wait_ms                      until a backend was chosen; like all times: milliseconds
	//	                             with three decimals, -1 = never reached
	//	connect_ms                   the connect that succeeded, alone
	//	first_byte_ms                from then to the backend's first byte
	//	total_ms                     until the last side closed
	//	bytes_in, bytes_out          from the client, to the client
	//	datagrams_in, datagrams_out  the same of a UDP session; 0 for TCP
	//	retries                      further backends tried after a failed connect
	//	queue_pos                    place in the pool's queue when it joined, 1 = next,
	//	                             0 = never queued
	//	strategy                     "a" or "b" of the pool's A/B comparison, "" without
	//	outcome                      the word of l4.Outcome
	//	termination                  HAProxy's two letters
	//	by                           who ended it: client | backend | proxy | nobody
	//	conns, service_conns, pool_conns, backend_conns
	//	                             connections open at the end, this one included
	//	tls                          of the client's side where Poise ends it, else null:
	//	  version, cipher            "TLSv1.3", "TLS_AES_128_GCM_SHA256"
	//	  server_name                what the client asked for; "" = nothing
	//	  alpn                       the protocol agreed on; "" = none
	//	  client_subject, client_cn  distinguished name (RFC 2253) and common name of the
	//	                             client's verified certificate; "" = it sent none
	//
	// In a text, what is not printable is escaped (\uXXXX), what is not UTF-8 becomes
	// U+FFFD, and what a client chose is cut, with an ellipsis at its end.
	JSON = "json"
)

var appenders = map[string]appender{Poise: appendPoise, TCPLog: appendTCPLog, JSON: appendJSON}

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
	b = appendPeer(b, s.Peer)
	b = append(b, `,"unique_id":`...)
	b = appendCut(b, s.UniqueID, mostUniqueID)
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
	b = appendCount(b, `,"datagrams_in":`, s.DatagramsIn)
	b = appendCount(b, `,"datagrams_out":`, s.DatagramsOut)
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
	b = appendTLS(b, s.TLS)
	return append(b, "}\n"...)
}

func appendPeer(b []byte, peer netip.AddrPort) []byte {
	if !peer.IsValid() {
		return append(b, `,"peer":"","peer_port":0`...)
	}
	b = append(b, `,"peer":"`...)
	b = appendAddr(b, peer.Addr(), appendUnquoted)
	return appendCount(b, `","peer_port":`, uint64(peer.Port()))
}

// How much of what a client chose is logged, in bytes: no DNS name is longer, and a
// distinguished name that is says nothing more.
const (
	mostServerName = 255
	mostSubject    = 1024
	mostUniqueID   = 128 // which is all there can be
)

func appendTLS(b []byte, t *l4.TLS) []byte {
	if t == nil {
		return append(b, `,"tls":null`...)
	}
	b = append(b, `,"tls":{"version":`...)
	b = appendQuoted(b, t.Version)
	b = append(b, `,"cipher":`...)
	b = appendQuoted(b, t.Cipher)
	b = append(b, `,"server_name":`...)
	b = appendCut(b, t.ServerName, mostServerName)
	b = append(b, `,"alpn":`...)
	b = appendCut(b, t.ALPN, mostServerName)
	b = append(b, `,"client_subject":`...)
	b = appendCut(b, t.Subject, mostSubject)
	b = append(b, `,"client_cn":`...)
	b = appendCut(b, t.CommonName, mostSubject)
	return append(b, '}')
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
