package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// asker is one of a run's concurrent clients: it has at most one connection and
// one request out.
type asker interface {
	// ask makes one request, on a new connection if there is none, and returns the
	// server's name.
	ask(seq uint64) (backend string, err error)
	carried() int // requests begun on the present connection
	hangUp()      // closes the connection, if there is one
}

// live makes one request of a after the other until the run has no more.
func (r *run) live(ctx context.Context, a asker) {
	defer a.hangUp()
	for {
		seq, from, ok := r.next(ctx)
		if !ok {
			return
		}
		backend, err := a.ask(seq)
		end := time.Now()
		s := Sample{Backend: backend, End: end, Latency: end.Sub(from), Err: err}
		r.tally.add(s)
		if r.Observe != nil {
			r.Observe(s)
		}
		if err != nil || a.carried() == r.PerConnection {
			a.hangUp()
		}
	}
}

// client asks over TCP.
type client struct {
	run     *run
	conn    *net.TCPConn // nil between connections
	r       *bufio.Reader
	begun   int // on conn
	request []byte
	reply   []byte
}

func newClient(r *run) *client {
	return &client{run: r, r: bufio.NewReader(nil), request: make([]byte, r.Size)}
}

func (c *client) carried() int { return c.begun }

func (c *client) ask(seq uint64) (string, error) {
	deadline := time.Now().Add(c.run.Timeout)
	if c.conn == nil {
		d := net.Dialer{Deadline: deadline, KeepAlive: -1}
		conn, err := d.Dial("tcp", c.run.addr)
		if err != nil {
			return "", err
		}
		c.conn, c.begun = conn.(*net.TCPConn), 0
		c.r.Reset(c.conn)
		c.run.tally.connections.Add(1)
	}
	c.begun++
	if err := c.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	writeRequest(c.request, seq)
	if _, err := c.conn.Write(c.request); err != nil {
		return "", err
	}
	return c.readReply()
}

var errReply = errors.New("wrong reply")

func (c *client) readReply() (string, error) {
	var err error
	c.reply, err = appendLine(c.reply[:0], c.r, MaxSize)
	if errors.Is(err, errLineTooLong) {
		return "", fmt.Errorf("%w: a line of more than %d bytes", errReply, MaxSize)
	}
	if err != nil {
		if len(c.reply) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	if bytes.Equal(c.reply, c.request) {
		return "", nil // a plain echo server
	}
	name := string(c.reply[:len(c.reply)-1])
	c.reply, err = appendLine(c.reply[:0], c.r, c.run.Size)
	switch {
	case err != nil && !errors.Is(err, errLineTooLong):
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	case !bytes.Equal(c.reply, c.request):
		return "", fmt.Errorf("%w: %.40q is not the request", errReply, c.reply)
	}
	return name, nil
}

func (c *client) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// writeRequest fills p with a line that is different for every seq, as far as p
// has room. It starts with a dot, which no name does: the first line of a reply
// is the request itself or a name, never both.
func writeRequest(p []byte, seq uint64) {
	last := len(p) - 1
	for i := range last {
		p[i] = '.'
	}
	p[last] = '\n'
	if last > 1 {
		var digits [20]byte
		n := strconv.AppendUint(digits[:0], seq, 10)
		n = n[max(len(n)-(last-1), 0):]
		copy(p[last-len(n):], n)
	}
}
