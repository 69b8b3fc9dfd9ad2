package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

// tape is a connection whose other side has sent its input and closed.
type tape struct {
	in  io.Reader
	out bytes.Buffer
}

func (t *tape) Read(b []byte) (int, error)     { return t.in.Read(b) }
func (t *tape) Write(b []byte) (int, error)    { return t.out.Write(b) }
func (*tape) Close() error                     { return nil }
func (*tape) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*tape) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }

// clientHello is what a client of crypto/tls sends first: one record.
func clientHello(c *tls.Config) []byte {
	c = c.Clone()
	if c.ServerName == "" {
		c.InsecureSkipVerify = true
	}
	conn := &tape{in: bytes.NewReader(nil)}
	_ = tls.Client(conn, c).HandshakeContext(context.Background()) // it reads the end
	return conn.out.Bytes()
}

var errSeen = errors.New("seen")

// readHelloOther is what a server of crypto/tls finds in a ClientHello, nil if it
// finds none.
func readHelloOther(b []byte) (info *tls.ClientHelloInfo) {
	server := tls.Server(&tape{in: bytes.NewReader(b)}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			info = i
			return nil, errSeen
		},
	})
	_ = server.HandshakeContext(context.Background())
	return info
}

// records spreads a message over records: of the sizes given, and one more for what
// is left.
func records(message string, sizes ...int) []byte {
	var b []byte
	for message != "" {
		n := len(message)
		if len(sizes) > 0 {
			n, sizes = min(n, sizes[0]), sizes[1:]
		}
		n = min(n, maxFragment)
		b = append(b, recordHandshake, recordMajor, 1, byte(n>>8), byte(n))
		b = append(b, message[:n]...)
		message = message[n:]
	}
	return b
}

// oneByteRecords spreads a message over records of one byte.
func oneByteRecords(message string) []byte {
	sizes := make([]int, len(message))
	for i := range sizes {
		sizes[i] = 1
	}
	return records(message, sizes...)
}

// vec is s behind its length, in n bytes.
func vec(n int, s string) string {
	length := binary.BigEndian.AppendUint64(nil, uint64(len(s)))
	return string(length[8-n:]) + s
}

func ext(typ int, data string) string {
	return string([]byte{byte(typ >> 8), byte(typ)}) + vec(2, data)
}

// sni is a server_name extension with names of type 0.
func sni(names ...string) string {
	list := ""
	for _, n := range names {
		list += "\x00" + vec(2, n)
	}
	return ext(extServerName, vec(2, list))
}

// alpn is an extension with protocols.
func alpn(protos ...string) string {
	list := ""
	for _, p := range protos {
		list += vec(1, p)
	}
	return ext(extALPN, vec(2, list))
}

// padding is an extension of n bytes altogether (RFC 7685).
func padding(n int) string { return ext(21, strings.Repeat("\x00", n-4)) }

// helloStart is a ClientHello without extensions and without its header.
var helloStart = "\x03\x03" + strings.Repeat("r", 32) + vec(1, "session") + vec(2, "\x13\x01") + vec(1, "\x00")

// helloMessage is a ClientHello with extensions.
func helloMessage(extensions ...string) string {
	return "\x01" + vec(3, helloStart+vec(2, strings.Join(extensions, "")))
}

// padded is a ClientHello of a client of crypto/tls that an extension more makes as
// long as wanted, as a message.
func padded(c *tls.Config, length int) string {
	m := string(clientHello(c)[recordHeader:])
	at := messageHeader + 2 + 32
	at += 1 + int(m[at])
	at += 2 + int(m[at])<<8 + int(m[at+1])
	at += 1 + int(m[at])
	extensions := m[at+2:] + padding(length-len(m))
	return "\x01" + vec(3, m[messageHeader:at]+vec(2, extensions))
}
