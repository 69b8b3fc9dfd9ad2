// Package l4 holds the nouns every datapath shares: a Flow is one client
// conversation, an Outcome the one way it ended, a Session what is known about
// it afterwards. It has no sockets, no goroutines and imports nothing of ours.
package l4

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"
)

// Proto is the transport of a flow.
type Proto uint8

// The transports Poise balances.
const (
	TCP Proto = iota
	UDP
)

// String returns "tcp" or "udp".
func (p Proto) String() string {
	if p == UDP {
		return "udp"
	}
	return "tcp"
}

// Flow is one client conversation. It is comparable and may be a map key.
// Addresses are unmapped: an IPv4 client of a dual-stack listener is IPv4.
type Flow struct {
	Proto       Proto
	Client, VIP netip.AddrPort
}

// CanAppearTo reports whether the client's address can be the source of what goes to a
// backend. It cannot if the backend's IP version has no word for it, or if it means
// another host on every link.
func (f Flow) CanAppearTo(backend netip.Addr) bool {
	client := f.Client.Addr()
	return client.Is4() == backend.Is4() && (client.IsGlobalUnicast() || client.IsLoopback())
}

// Hash mixes the client's address and port, and seed, into 64 well spread bits.
// It depends on nothing of the process, so both boxes of a pair agree. The two
// folded multiplications are those of wyhash (Wang Yi, 2019).
func (f Flow) Hash(seed uint64) uint64 {
	return HashAddr(f.Client.Addr(), f.Client.Port(), seed)
}

// HashAddr is Flow.Hash of a bare address and port; a caller that hashes by
// source only passes port 0.
func HashAddr(a netip.Addr, port uint16, seed uint64) uint64 {
	b := a.As16()
	hi, lo := binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
	h := fold(hi^0xa0761d6478bd642f, lo^seed^0xe7037ed1a0b428db)
	return fold(h^0x8ebc6af09c88c6e3, uint64(port)^seed^0x589965cc75374cc3)
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Side names who did something to a flow.
type Side uint8

// The three parties of a flow.
const (
	Nobody Side = iota
	Client
	Backend
	Proxy
)

// Unreached is the value of a Session duration for a phase that never happened.
const Unreached = time.Duration(-1)

// Session is what is known about one flow when it has ended. Durations are
// measured from Start; Unreached means the phase never happened.
type Session struct {
	Service, Pool, Backend string // Backend is "" when none was ever connected
	Flow                   Flow
	// Peer is who connected, if that is a proxy that stated the client's address;
	// the zero value if it is the client itself.
	Peer netip.AddrPort
	// UniqueID is what the client's proxy, or else Poise, calls the connection in PROXY
	// headers, at most 128 bytes; "" if it has not come up. A stranger may have chosen it.
	UniqueID                  string
	TLS                       *TLS          // of the client's side, where Poise ends it; else nil
	Start                     time.Time     // accepted
	Wait                      time.Duration // until a backend was chosen (queueing included)
	Connect                   time.Duration // the connect that succeeded, alone
	FirstByte                 time.Duration // from the established connection to the backend's first byte
	Total                     time.Duration // until the last side closed
	BytesIn, BytesOut         uint64        // from the client, to the client
	DatagramsIn, DatagramsOut uint64        // of a UDP session
	Retries                   int           // further backends tried
	Outcome                   Outcome
	By                        Side   // who ended it
	Strategy                  string // "a" or "b" of the pool's A/B comparison, "" without one
	QueuePos                  int    // place in the pool's queue when it joined, 1 = next; 0 = never queued

	// Open connections when this one ended, itself included, as HAProxy logs
	// them: of the process, the service, the pool, the backend.
	ActConn, SvcConn, PoolConn, BackendConn int64
}

// TLS is what a handshake with a client has settled. It is immutable.
type TLS struct {
	Version    string // "TLSv1.3"
	Cipher     string // "TLS_AES_128_GCM_SHA256"
	ServerName string // as the client asked for, in lower case; "" = it did not
	ALPN       string // "" = none was agreed on
	Resumed    bool   // what follows is from the handshake of an earlier connection

	Verified bool // the client has a certificate, and it was found good
	// Of that certificate. A subject may be empty: then it is the first of the
	// alternative names, as "DNS:..." or "URI:...".
	Subject    string // its distinguished name (RFC 2253)
	CommonName string // "" = it has none
}
