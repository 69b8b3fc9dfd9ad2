package sock_test

import (
	"testing"

	"github.com/poise-lb/poise/l4/sock"
)

func TestPipeMovesBytes(t *testing.T) {
	a, b := connected(t)
	c, d := connected(t)
	for _, fd := range []int{a, b, c, d} {
		defer sock.Close(fd)
	}
	p, errno := sock.NewPipe()
	if errno != 0 {
		t.Fatal(errno)
	}
	defer p.Close()
	if !p.Valid() || (sock.Pipe{}).Valid() {
		t.Error("Valid is wrong")
	}
	if _, errno := p.Fill(b, 100); errno != sock.EAGAIN {
		t.Errorf("empty socket: %v", errno)
	}
	sock.Write(a, []byte("spliced"))
	wait(t, b, sock.Readable)
	n, errno := p.Fill(b, 100)
	if n != 7 || errno != 0 {
		t.Fatal(n, errno)
	}
	if n, errno = p.Empty(c, n); n != 7 || errno != 0 {
		t.Fatal(n, errno)
	}
	wait(t, d, sock.Readable)
	buf := make([]byte, 16)
	if n, _ := sock.Read(d, buf); string(buf[:n]) != "spliced" {
		t.Errorf("got %q", buf[:n])
	}
	sock.CloseWrite(a)
	wait(t, b, sock.ReadHup)
	if n, errno := p.Fill(b, 100); n != 0 || errno != 0 {
		t.Errorf("at the end of the stream: %d, %v", n, errno)
	}
}
