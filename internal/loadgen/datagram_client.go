package loadgen

import (
	"bytes"
	"fmt"
	"net"
	"time"
)

// MaxDatagram is the longest request over UDP in bytes: what fits an IPv4
// datagram. With a name before it the reply to one so long does not, and a
// DatagramBackend sends it back without.
const MaxDatagram = 65507

// datagramClient asks over UDP. A connection is a connected socket: it receives
// from the server's address only, and is told when nobody listens there.
type datagramClient struct {
	run     *run
	conn    *net.UDPConn // nil between sockets
	begun   int          // on conn
	request []byte
	reply   []byte
}

func newDatagramClient(r *run) *datagramClient {
	// One byte more than any datagram has: none is cut unnoticed.
	return &datagramClient{run: r, request: make([]byte, r.Size), reply: make([]byte, MaxDatagram+1)}
}

func (c *datagramClient) carried() int { return c.begun }

func (c *datagramClient) ask(seq uint64) (string, error) {
	if c.conn == nil {
		conn, err := net.Dial("udp", c.run.addr)
		if err != nil {
			return "", err
		}
		c.conn, c.begun = conn.(*net.UDPConn), 0
		c.run.tally.connections.Add(1)
	}
	c.begun++
	if err := c.conn.SetDeadline(time.Now().Add(c.run.Timeout)); err != nil {
		return "", err
	}
	writeRequest(c.request, seq)
	if _, err := c.conn.Write(c.request); err != nil {
		return "", err
	}
	n, err := c.conn.Read(c.reply)
	if err != nil {
		return "", err
	}
	// Neither a name nor the rest of a request has a newline before its end.
	name, rest, named := bytes.Cut(c.reply[:n], []byte("\n"))
	switch {
	case bytes.Equal(c.reply[:n], c.request): // a plain echo server
		return "", nil
	case named && bytes.Equal(rest, c.request):
		return string(name), nil
	}
	return "", fmt.Errorf("%w: %.40q is not the request", errReply, c.reply[:n])
}

func (c *datagramClient) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
