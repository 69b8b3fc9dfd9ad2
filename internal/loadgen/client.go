package loadgen

import (
	"context"
	"net"
	"strconv"
	"time"
)

// client is one of a run's concurrent clients: it has at most one connection and
// one request out. Over UDP a connection is a connected socket: it receives from
// the server's address only, and is told when nobody listens there.
type client struct {
	run     *run
	network string
	conn    net.Conn // nil between connections
	begun   int      // requests, on conn
	request []byte
	replies replies
}

func newClient(r *run) *client {
	c := &client{run: r, network: "tcp", request: make([]byte, r.Size), replies: newLines()}
	if r.UDP {
		c.network, c.replies = "udp", newDatagrams()
	}
	return c
}

// live makes one request after the other until the run has no more.
func (c *client) live(ctx context.Context) {
	defer c.hangUp()
	r := c.run
	for {
		seq, from, ok := r.next(ctx)
		if !ok {
			return
		}
		backend, err := c.ask(seq)
		end := time.Now()
		s := Sample{Backend: backend, End: end, Latency: end.Sub(from), Err: err}
		r.tally.add(s)
		if r.Observe != nil {
			r.Observe(s)
		}
		if err != nil || c.begun == r.PerConnection {
			c.hangUp()
		}
	}
}

// ask makes one request, on a new connection if there is none, and returns the
// server's name.
func (c *client) ask(seq uint64) (backend string, err error) {
	deadline := time.Now().Add(c.run.Timeout)
	if c.conn == nil {
		d := net.Dialer{Deadline: deadline, KeepAlive: -1}
		conn, err := d.Dial(c.network, c.run.addr)
		if err != nil {
			return "", err
		}
		c.conn, c.begun = conn, 0
		c.replies.from(conn)
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
	return c.replies.to(c.request)
}

// hangUp closes the connection, if there is one.
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
