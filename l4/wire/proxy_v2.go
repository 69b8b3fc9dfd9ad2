package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// ProxyV2 is a header of version 2 to be written.
type ProxyV2 struct {
	Datagram bool // the client speaks UDP

	// The client, and what it connected to. If only one of them is IPv4 it is written
	// as the IPv6 address it maps to, so that the client's address gets through.
	// Zones are left out. If one is the zero value, as for a client on a Unix socket,
	// the family is unspecified and the receiver uses the real addresses.
	Source, Destination netip.AddrPort

	// The fields behind the addresses; what is empty or nil is left out.
	ALPN      string // what was agreed on, "h2"
	Authority string // the name the client asked for
	UniqueID  []byte // left out too if longer than MaxProxyUniqueID
	SSL       *ProxySSL
	Custom    []TLV // written as they are; one of type TLVCRC32C is left out
	CRC       bool  // a checksum over the header
}

// ProxySSL says how the client's connection is encrypted. Empty strings are left
// out.
type ProxySSL struct {
	Version    string // "TLSv1.3"; receivers may insist on it
	Cipher     string // "TLS_AES_128_GCM_SHA256"
	CommonName string // of the client's certificate
	ClientCert bool   // the client has presented one, in this session
	Resumed    bool   // but not on this connection, which resumes the session
	Verified   bool   // and it was found good
}

// Bits of the first byte of an SSL field (section 2.2.6).
const (
	sslClient   = 1 << iota // the client's connection is encrypted
	sslCertConn             // it presented a certificate on this connection
	sslCertSess             // it did so in this session, at least once
)

// Append appends the header, of at most MaxProxyHeader bytes. A field for which
// there is no room any more, in the order of the struct, is left out whole; the
// addresses and the checksum always have room. It is meant to be sent in one piece:
// with 536 bytes or less that works on every path (section 2). If b has room, Append
// allocates nothing.
func (h *ProxyV2) Append(b []byte) []byte {
	start := len(b)
	b = append(b, proxyV2Signature...)
	s, d, v4 := sameFamily(h.Source, h.Destination)
	if !s.IsValid() {
		b = append(b, proxyV2Proxy, familyUnspec<<4|transportUnspec, 0, 0)
	} else {
		family, transport := byte(familyINET6), byte(transportStream)
		if v4 {
			family = familyINET
		}
		if h.Datagram {
			transport = transportDatagram
		}
		b = append(b, proxyV2Proxy, family<<4|transport, 0, 0)
		b = appendIP(appendIP(b, s), d)
		b = binary.BigEndian.AppendUint16(b, h.Source.Port())
		b = binary.BigEndian.AppendUint16(b, h.Destination.Port())
	}
	end := start + MaxProxyHeader
	if h.CRC {
		end -= tlvStart + crc32.Size
	}
	b = h.appendTLVs(b, end)
	sum := len(b) + tlvStart
	if h.CRC {
		b = append(b, TLVCRC32C, 0, crc32.Size, 0, 0, 0, 0)
	}
	header := b[start:]
	binary.BigEndian.PutUint16(header[proxyV2Length:], uint16(len(header)-proxyV2Start))
	if h.CRC { // it is over the length too
		binary.BigEndian.PutUint32(b[sum:], proxyChecksum(header, sum-start))
	}
	return b
}

func (h *ProxyV2) appendTLVs(b []byte, end int) []byte {
	if h.ALPN != "" {
		b = appendTLV(b, end, TLVALPN, h.ALPN)
	}
	if h.Authority != "" {
		b = appendTLV(b, end, TLVAuthority, h.Authority)
	}
	if n := len(h.UniqueID); 0 < n && n <= MaxProxyUniqueID {
		b = appendTLV(b, end, TLVUniqueID, h.UniqueID)
	}
	if h.SSL != nil {
		b = h.SSL.append(b, end)
	}
	for _, t := range h.Custom {
		if t.Type != TLVCRC32C {
			b = appendTLV(b, end, t.Type, t.Value)
		}
	}
	return b
}

func (s *ProxySSL) append(b []byte, end int) []byte {
	client, verify := byte(sslClient), uint32(1)
	if s.ClientCert {
		client |= sslCertSess
		if !s.Resumed {
			client |= sslCertConn
		}
		if s.Verified {
			verify = 0
		}
	}
	start := len(b)
	need := tlvStart + 1 + 4
	if s.Version != "" {
		need += tlvStart + len(s.Version)
	}
	if start+need > end {
		return b
	}
	b = append(b, TLVSSL, 0, 0, client)
	b = binary.BigEndian.AppendUint32(b, verify)
	if s.Version != "" {
		b = appendTLV(b, end, tlvSSLVersion, s.Version)
	}
	if s.Cipher != "" {
		b = appendTLV(b, end, tlvSSLCipher, s.Cipher)
	}
	if s.CommonName != "" {
		b = appendTLV(b, end, tlvSSLCommonName, s.CommonName)
	}
	binary.BigEndian.PutUint16(b[start+1:], uint16(len(b)-start-tlvStart))
	return b
}

// appendTLV appends a field if b stays within end bytes.
func appendTLV[T string | []byte](b []byte, end int, typ byte, value T) []byte {
	if len(value) > end-len(b)-tlvStart {
		return b
	}
	b = append(b, typ, byte(len(value)>>8), byte(len(value)))
	return append(b, value...)
}

func appendIP(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		ip := a.As4()
		return append(b, ip[:]...)
	}
	ip := a.As16()
	return append(b, ip[:]...)
}
