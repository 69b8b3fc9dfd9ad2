package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Types of the fields behind the addresses (section 2.2), and of those within the
// SSL field (section 2.2.6).
const (
	TLVALPN      = 0x01
	TLVAuthority = 0x02
	TLVCRC32C    = 0x03
	TLVNoop      = 0x04
	TLVUniqueID  = 0x05
	TLVSSL       = 0x20

	tlvSSLVersion    = 0x21
	tlvSSLCommonName = 0x22
	tlvSSLCipher     = 0x23
)

// MaxProxyUniqueID bounds a unique id, in bytes (section 2.2.5).
const MaxProxyUniqueID = 128

// TLV is a field of a header of version 2. Types 0xE0 to 0xEF are for the
// applications' own use (section 2.2.8).
type TLV struct {
	Type  byte
	Value []byte
}

// A type and two bytes of length stand before each value.
const tlvStart = 3

// cutTLV cuts the first field off b.
func cutTLV(b []byte) (typ byte, value, rest []byte, ok bool) {
	if len(b) < tlvStart {
		return 0, nil, nil, false
	}
	end := tlvStart + int(binary.BigEndian.Uint16(b[1:]))
	if len(b) < end {
		return 0, nil, nil, false
	}
	return b[0], b[tlvStart:end:end], b[end:], true
}

// checkTLVs says whether the fields of a header, which go from start to its end,
// are well formed, and compares the checksum, if one is among them.
func checkTLVs(header []byte, start int) error {
	sum := 0 // where the checksum stands, 0 = there is none
	for at := start; at < len(header); {
		typ, value, rest, ok := cutTLV(header[at:])
		switch {
		case !ok:
			return errProxyTLV
		case typ == TLVUniqueID && len(value) > MaxProxyUniqueID:
			return errProxyUnique
		case typ == TLVCRC32C:
			// Of two sums each would be over the other one.
			if len(value) != crc32.Size || sum != 0 {
				return errProxyChecksum
			}
			sum = at + tlvStart
		}
		at = len(header) - len(rest)
	}
	if sum != 0 && proxyChecksum(header, sum) != binary.BigEndian.Uint32(header[sum:]) {
		return errProxyChecksum
	}
	return nil
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	noSum      [crc32.Size]byte
)

// proxyChecksum is the CRC32C over a header, with zeros in place of the four bytes
// at sum, where it stands itself (section 2.2.3).
func proxyChecksum(header []byte, sum int) uint32 {
	crc := crc32.Update(0, castagnoli, header[:sum])
	crc = crc32.Update(crc, castagnoli, noSum[:])
	return crc32.Update(crc, castagnoli, header[sum+crc32.Size:])
}
