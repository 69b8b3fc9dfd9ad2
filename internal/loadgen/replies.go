package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
)

// replies read what comes back on a client's connection.
type replies interface {
	from(conn net.Conn) // a new connection, which they are read from now on
	// to reads the reply to request and returns the server's name: "" of one that
	// only echoes. The error is errReply if the reply is to something else.
	to(request []byte) (backend string, err error)
}

var errReply = errors.New("wrong reply")

// lines are replies over TCP.
type lines struct {
	r     *bufio.Reader
	reply []byte
}

func newLines() *lines { return &lines{r: bufio.NewReader(nil)} }

func (l *lines) from(conn net.Conn) { l.r.Reset(conn) }

func (l *lines) to(request []byte) (string, error) {
	var err error
	l.reply, err = appendLine(l.reply[:0], l.r, MaxSize)
	if errors.Is(err, errLineTooLong) {
		return "", fmt.Errorf("%w: a line of more than %d bytes", errReply, MaxSize)
	}
	if err != nil {
		if len(l.reply) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	if bytes.Equal(l.reply, request) {
		return "", nil // a plain echo server
	}
	name := string(l.reply[:len(l.reply)-1])
	l.reply, err = appendLine(l.reply[:0], l.r, len(request))
	switch {
	case err != nil && !errors.Is(err, errLineTooLong):
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	case !bytes.Equal(l.reply, request):
		return "", notTheRequest(l.reply)
	}
	return name, nil
}

// datagrams are replies over UDP.
type datagrams struct {
	conn  net.Conn
	reply []byte
}

func newDatagrams() *datagrams {
	// One byte more than any datagram has: none is cut unnoticed.
	return &datagrams{reply: make([]byte, MaxDatagram+1)}
}

func (d *datagrams) from(conn net.Conn) { d.conn = conn }

func (d *datagrams) to(request []byte) (string, error) {
	n, err := d.conn.Read(d.reply)
	if err != nil {
		return "", err
	}
	// Neither a name nor the rest of a request has a newline before its end.
	name, rest, named := bytes.Cut(d.reply[:n], []byte("\n"))
	switch {
	case bytes.Equal(d.reply[:n], request): // a plain echo server
		return "", nil
	case named && bytes.Equal(rest, request):
		return string(name), nil
	}
	return "", notTheRequest(d.reply[:n])
}

func notTheRequest(reply []byte) error {
	return fmt.Errorf("%w: %.40q is not the request", errReply, reply)
}
