package loadgen

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
)

// MaxSize is the longest request in bytes, its newline included. A pure echo
// server may write while the client still does: at this size both fit into the
// sockets' buffers, so neither side can block the other.
const MaxSize = 64 << 10

// serve is the life of one connection; the caller closes it.
func (b *Backend) serve(c *net.TCPConn) {
	how := b.Behaviour()
	if how.Reset {
		_ = c.SetLinger(0) // makes the close that follows a reset
		return
	}
	if how.Greeting != "" && !b.send(c, []byte(how.Greeting)) {
		return
	}
	switch how.Mode {
	case Named:
		b.serveNamed(c)
	case Echo:
		b.serveEcho(c)
	case Sink:
		n, err := io.Copy(io.Discard, counted{c, b})
		if err == nil {
			b.send(c, strconv.AppendInt(nil, n, 10), []byte("\n"))
		}
	case Source:
		if b.serveSource(c, how.Length) && c.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, counted{c, b})
		}
	}
}

func (b *Backend) serveNamed(c *net.TCPConn) {
	r := bufio.NewReader(counted{c, b})
	reply := append([]byte(b.name), '\n')
	head := len(reply)
	for {
		var err error
		if reply, err = appendLine(reply[:head], r, MaxSize); err != nil {
			return
		}
		how := b.Behaviour()
		if how.Serial {
			select {
			case b.turn <- struct{}{}:
			case <-b.closing:
				return
			}
		}
		ok := sleep(how.Delay, b.closing)
		if how.Serial {
			<-b.turn
		}
		if !ok {
			return
		}
		b.requests.Add(1) // before the reply, so that whoever has it finds it counted
		if !b.send(c, reply) {
			return
		}
	}
}

func (b *Backend) serveEcho(c *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Read(buf)
		b.bytesIn.Add(uint64(n))
		if n > 0 && !b.send(c, buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

func (b *Backend) serveSource(c *net.TCPConn, length int64) bool {
	zero := make([]byte, 64<<10)
	for length > 0 {
		n := min(length, int64(len(zero)))
		if !b.send(c, zero[:n]) {
			return false
		}
		length -= n
	}
	return true
}

// send writes the parts and reports whether all of them left.
func (b *Backend) send(c *net.TCPConn, parts ...[]byte) bool {
	bufs := net.Buffers(parts)
	n, err := bufs.WriteTo(c)
	b.bytesOut.Add(uint64(n))
	return err == nil
}

// counted counts what is read from a connection. It embeds nothing: io.Copy
// would find the connection's own WriteTo and read past the counter.
type counted struct {
	conn *net.TCPConn
	b    *Backend
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	c.b.bytesIn.Add(uint64(n))
	return n, err
}

var errLineTooLong = errors.New("line too long")

// appendLine appends the next line of r, its newline included, to dst. The line
// is at most limit bytes.
func appendLine(dst []byte, r *bufio.Reader, limit int) ([]byte, error) {
	for start := len(dst); ; {
		part, err := r.ReadSlice('\n')
		if len(dst)-start+len(part) > limit {
			return dst, errLineTooLong
		}
		dst = append(dst, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return dst, err
		}
	}
}
