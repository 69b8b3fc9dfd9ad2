package wire

// The PROXY protocol tells a server on whose behalf a connection is made, in a
// header before everything else. It is specified in proxy-protocol.txt of HAProxy,
// version 1 in section 2.1 and version 2 in section 2.2.

// proxyV2Signature starts every header of version 2. It is made so that no
// server of another protocol takes it for a beginning of its own.
const proxyV2Signature = "\r\n\r\n\x00\r\nQUIT\n"

// proxyV2Local is the byte after the signature: version 2 in the upper four bits,
// command 0, LOCAL, in the lower four.
const proxyV2Local = 2 << 4

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
