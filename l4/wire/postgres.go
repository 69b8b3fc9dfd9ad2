package wire

import "encoding/binary"

// PostgresStartLen is how many bytes of a stream PostgresStart needs at most.
const PostgresStartLen = 8

// PGStart says what a client of PostgreSQL begins with.
type PGStart uint8

// The beginnings (PostgreSQL documentation, Message Formats). Each of the two
// requests is answered with one byte; then the client goes on.
const (
	PGUndecided     PGStart = iota // more bytes are needed
	PGSSLRequest                   // the next thing is a ClientHello, if the answer is "S"
	PGGSSENCRequest                // asks for GSSAPI encryption; "N" refuses, and the client may ask for TLS
	PGOther                        // anything else: a start in plain text, a cancel request, a ClientHello
)

// Both requests are a length, which counts itself, and a number in place of the
// version of a start: 1234 in the upper half of it.
const (
	pgRequestLen = 8
	pgSSL        = 1234<<16 | 5679
	pgGSSENC     = 1234<<16 | 5680
)

var (
	pgSSLRequest    = string(appendPGRequest(nil, pgSSL))
	pgGSSENCRequest = string(appendPGRequest(nil, pgGSSENC))
)

func appendPGRequest(b []byte, code uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, pgRequestLen), code)
}

// PostgresStart looks at b, all bytes of the stream so far. A request is the first
// PostgresStartLen bytes. A client waits for the answer before it sends more, so
// bytes behind a request that has not been answered are a third party's or an
// error, and must not be taken for what comes after the answer (CVE-2021-23214).
func PostgresStart(b []byte) PGStart {
	switch ssl, gss := agrees(b, pgSSLRequest), agrees(b, pgGSSENCRequest); {
	case !ssl && !gss:
		return PGOther
	case len(b) < PostgresStartLen:
		return PGUndecided
	case ssl:
		return PGSSLRequest
	default:
		return PGGSSENCRequest
	}
}

// AppendSSLRequest appends the request of a client for TLS, of 8 bytes.
func AppendSSLRequest(b []byte) []byte { return append(b, pgSSLRequest...) }
