package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxHello bounds how much of a stream HelloParser looks at for a ClientHello, in
// bytes: all of its records with their headers.
const MaxHello = 64 << 10

// What is wrong with the beginning of a stream. Errors of HelloParser wrap one of
// these.
var (
	// ErrNotTLS: the stream does not begin with a handshake record. It is some other
	// protocol, which is known at the first or the second byte.
	ErrNotTLS = errors.New("not TLS")
	// ErrHello: the stream begins as TLS does, but not with a valid ClientHello.
	ErrHello = errors.New("bad ClientHello")
	// ErrHelloTooLarge: the ClientHello does not fit into MaxHello bytes.
	ErrHelloTooLarge = errors.New("ClientHello of more than 64 KiB")
)

// The errors are made once: their texts hold nothing of the peer's bytes, and a
// flood of bad beginnings costs no memory.
var (
	errHelloRecord   = badHello("another record before its end")
	errHelloVersion  = badHello("a record of an unknown version")
	errHelloLength   = badHello("a record that is empty or of more than 16 KiB")
	errHelloType     = badHello("another handshake message in its place")
	errHelloFraming  = badHello("lengths in the message that do not fit")
	errHelloRepeated = badHello("an extension twice")
	errHelloName     = badHello("the server name is not one host name")
	errHelloALPN     = badHello("the list of application protocols is not valid")
)

func badHello(what string) error { return fmt.Errorf("%w: %s", ErrHello, what) }

// Of the record layer (RFC 8446, section 5.1): a type, a version whose upper byte has
// been 3 ever since SSL 3.0, and the length of the fragment.
const (
	recordHeader    = 1 + 2 + 2
	recordHandshake = 22
	recordMajor     = 3
	maxFragment     = 1 << 14
)

// Of handshake messages (RFC 8446, section 4): a type and three bytes of length.
const (
	messageHeader      = 1 + 3
	messageClientHello = 1
)

// HelloParser reads a TLS ClientHello at the beginning of a stream, without ending
// the TLS (RFC 8446, sections 4.1.2 and 5.1). The message may be spread over any
// number of records. It keeps nothing of the stream but what it returns. The zero
// value is ready; to read another stream, set it to that again.
type HelloParser struct {
	pos  int // bytes of the stream that have been looked at
	left int // bytes of the current record behind pos
	got  int // bytes of the message before pos; what follows it in its record counts
	want int // length of the message, 0 = not known yet

	head [messageHeader]byte // of the message
	done bool
	err  error
	hello
}

// Next looks at b, all bytes of the stream so far, and is done when the ClientHello
// is complete and well formed. More bytes are needed if it is neither done nor an
// error; there are never more than MaxHello. The error wraps ErrNotTLS, ErrHello or
// ErrHelloTooLarge, and is final. A length that leads beyond MaxHello is an error as
// soon as it is seen.
//
// Next checks no more than it needs: a server may still refuse the message.
func (p *HelloParser) Next(b []byte) (done bool, err error) {
	for !p.done && p.err == nil {
		var more bool
		switch {
		case p.want > 0 && p.got >= p.want:
			p.err = p.parse(p.message(b))
			p.done = p.err == nil
			more = true
		case p.left == 0:
			more, p.err = p.nextRecord(b[p.pos:])
		default:
			more, p.err = p.nextFragment(b[p.pos:])
		}
		if !more {
			break
		}
	}
	return p.done, p.err
}

// nextRecord reads the header of a record, at the beginning of b.
func (p *HelloParser) nextRecord(b []byte) (more bool, err error) {
	first := p.pos == 0
	switch {
	case len(b) > 0 && b[0] != recordHandshake:
		if first {
			return false, ErrNotTLS
		}
		return false, errHelloRecord
	case len(b) > 1 && b[1] != recordMajor:
		if first {
			return false, ErrNotTLS
		}
		return false, errHelloVersion
	case len(b) < recordHeader:
		return false, nil
	}
	n := int(binary.BigEndian.Uint16(b[3:]))
	if n == 0 || n > maxFragment {
		return false, errHelloLength
	}
	p.pos += recordHeader
	p.left = n
	return true, p.fits()
}

// nextFragment passes over what there is of a record, at the beginning of b.
func (p *HelloParser) nextFragment(b []byte) (more bool, err error) {
	n := min(p.left, len(b))
	if p.got < messageHeader {
		copy(p.head[p.got:], b[:n])
	}
	p.pos, p.left, p.got = p.pos+n, p.left-n, p.got+n
	if p.got > 0 && p.head[0] != messageClientHello {
		return false, errHelloType
	}
	if p.want == 0 && p.got >= messageHeader {
		p.want = messageHeader + int(p.head[1])<<16 + int(p.head[2])<<8 + int(p.head[3])
	}
	return n > 0, p.fits()
}

// fits says whether what is still missing of the message ends within MaxHello, with
// as many headers before it as it needs at least.
func (p *HelloParser) fits() error {
	missing := max(0, p.want-p.got)
	later := max(0, missing-p.left) // behind the current record
	headers := (later + maxFragment - 1) / maxFragment * recordHeader
	if p.pos+missing+headers > MaxHello {
		return ErrHelloTooLarge
	}
	return nil
}

// message returns the complete message without its header. It is a part of b if one
// record holds it all, as is usual, and else a copy, made only once it is complete.
func (p *HelloParser) message(b []byte) []byte {
	first := int(binary.BigEndian.Uint16(b[3:]))
	if first >= p.want {
		return b[recordHeader+messageHeader : recordHeader+p.want]
	}
	m := make([]byte, 0, p.want)
	for rest := b; len(m) < p.want; {
		n := int(binary.BigEndian.Uint16(rest[3:]))
		rest = rest[recordHeader:]
		m = append(m, rest[:min(n, p.want-len(m))]...)
		rest = rest[min(n, len(rest)):]
	}
	return m[messageHeader:]
}
