package tcp

import (
	"crypto/rand"
	"encoding/hex"
	"net/netip"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/wire"
)

// maxAuthority is the longest DNS name. Where the client's TLS ends here, crypto/tls
// lets it ask for anything, which must not grow the header beyond a buffer.
const maxAuthority = 253

// appendPreface appends the PROXY header that the connection to the backend begins
// with, if any.
func (c *conn) appendPreface(b []byte) []byte {
	out := &c.up.Proxy
	switch out.Version {
	case 1:
		return wire.AppendProxyV1(b, c.flow.Client, c.flow.VIP)
	case 2:
		h := wire.ProxyV2{Source: c.flow.Client, Destination: c.flow.VIP, Custom: out.Custom}
		if f := c.front; f != nil {
			if out.Authority && len(f.serverName) <= maxAuthority {
				h.Authority = f.serverName
			}
			if t := f.tls; t != nil {
				if out.ALPN {
					h.ALPN = t.ALPN
				}
				if out.SSL {
					h.SSL = &wire.ProxySSL{
						Version: t.Version, Cipher: t.Cipher, CommonName: commonName(t),
						ClientCert: t.Verified, Verified: t.Verified, Resumed: t.Resumed,
					}
				}
			}
		}
		if out.UniqueID {
			h.UniqueID = c.identify()
		}
		return h.Append(b)
	}
	return b
}

// identify returns the connection's unique id, made when nobody has made one: it is
// the same for every backend that is tried.
func (c *conn) identify() []byte {
	f := c.needFront()
	if f.uniqueID == nil {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		f.uniqueID = hex.AppendEncode(nil, id[:])
	}
	return f.uniqueID
}

// commonName is what a header says of the client's certificate. RFC 5280 allows 64
// characters; an authority that signs more must not make the header too long for its
// buffer.
func commonName(t *l4.TLS) string {
	if len(t.CommonName) > 255 {
		return ""
	}
	return t.CommonName
}

// source is the address to connect to a backend from; the zero value leaves it to
// the kernel.
func (u *Upstream) source(f l4.Flow, backend netip.AddrPort) (source netip.Addr, transparent bool) {
	if u.Transparent && f.CanAppearTo(backend.Addr()) {
		return f.Client.Addr(), true
	}
	return u.Source, false
}
