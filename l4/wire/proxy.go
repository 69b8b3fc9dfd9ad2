package wire

import (
	"errors"
	"fmt"
)

// The PROXY protocol tells a server on whose behalf a connection is made, in a
// header before everything else. It is specified in proxy-protocol.txt of HAProxy,
// version 1 in section 2.1 and version 2 in section 2.2.

// MaxProxyHeader is the longest header there is, in bytes: one of version 2. One of
// version 1 has at most 107.
const MaxProxyHeader = proxyV2Start + 65535

// ErrProxyHeader is what every error of ProxyParser wraps: the stream does not begin
// with a valid header of an accepted version.
var ErrProxyHeader = errors.New("bad PROXY header")

// The errors are made once: their texts hold nothing of the peer's bytes, and a
// flood of bad headers costs no memory.
var (
	errProxyNone     = badProxy("the stream begins with something else")
	errProxyVersion  = badProxy("its version is not accepted here")
	errProxyLine     = badProxy("the protocol is none of TCP4, TCP6 and UNKNOWN")
	errProxyLineEnd  = badProxy("a lone CR or LF in the line")
	errProxyLineLong = badProxy("no CRLF within 107 bytes")
	errProxyFields   = badProxy("not two addresses and two ports with single spaces between them")
	errProxyAddress  = badProxy("an address is not valid or not of the stated family")
	errProxyPort     = badProxy("a port is not a decimal number from 0 to 65535")
	errProxyBinary   = badProxy("the version after the signature is not 2")
	errProxyCommand  = badProxy("the command is neither LOCAL nor PROXY")
	errProxyFamily   = badProxy("unknown address family or transport protocol")
	errProxyShort    = badProxy("the stated length is too short for the addresses")
	errProxyTLV      = badProxy("the type-length-value fields do not add up to the stated length")
	errProxyUnique   = badProxy("the unique id has more than 128 bytes")
	errProxyChecksum = badProxy("the CRC32C checksum is wrong")
)

func badProxy(what string) error { return fmt.Errorf("%w: %s", ErrProxyHeader, what) }

// proxyV2Signature starts every header of version 2. It is made so that no
// server of another protocol takes it for a beginning of its own.
const proxyV2Signature = "\r\n\r\n\x00\r\nQUIT\n"

// The bytes after the signature: version and command, family and transport, and two
// of length. The addresses start behind them.
const (
	proxyV2Command = len(proxyV2Signature)
	proxyV2Family  = proxyV2Command + 1
	proxyV2Length  = proxyV2Family + 1
	proxyV2Start   = proxyV2Length + 2
)

// Values of the byte after the signature: version 2 in the upper four bits, the
// command in the lower four.
const (
	proxyV2Local = 2 << 4
	proxyV2Proxy = 2<<4 + 1
)

// Values of the upper four bits of the family byte, and of the lower four.
const (
	familyUnspec, familyINET, familyINET6, familyUnix   = 0, 1, 2, 3
	transportUnspec, transportStream, transportDatagram = 0, 1, 2
)

// Bytes that the addresses and ports of a family take.
const (
	lenINET  = 2*4 + 2*2
	lenINET6 = 2*16 + 2*2
	lenUnix  = 2 * 108
)

// AppendProxyV1Unknown appends the header of version 1 for a connection that the
// balancer makes for itself. The protocol is UNKNOWN and no address is given, so
// that the receiver uses the real ones (section 2.1). It is 15 bytes.
func AppendProxyV1Unknown(b []byte) []byte {
	return append(b, "PROXY UNKNOWN\r\n"...)
}

// AppendProxyV2Local appends the header of version 2 for a connection that the
// balancer makes for itself. The command is LOCAL, the family unspecified and the
// length 0, so that the receiver uses the real addresses (section 2.2). It is
// 16 bytes.
func AppendProxyV2Local(b []byte) []byte {
	return append(append(b, proxyV2Signature...), proxyV2Local, 0, 0, 0)
}
