package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// stream is a TCP server that sends or receives as much as it can. What it does
// with a connection is up to its first byte.
type stream struct {
	listen netip.AddrPort
	verify int64                // received bytes that are compared; the rest is discarded unread
	ready  func(netip.AddrPort) // with the real port; nil = nobody asks
}

const (
	streamSource = 'd' // down: the server sends until the client ends it
	streamSink   = 'u' // up: the server receives pieces, then sends how much they were
)

func streamCommand(ctx context.Context, args []string) error {
	var s stream
	flags := flag.NewFlagSet("stream", flag.ContinueOnError)
	flags.TextVar(&s.listen, "listen", netip.AddrPort{}, "address to serve on")
	flags.Int64Var(&s.verify, "verify", 32<<20, "received bytes that are compared; the rest is discarded")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !s.listen.IsValid() || s.verify < 0 {
		return errors.New("-listen is needed, and -verify must not be negative")
	}
	return serve(ctx, s.run)
}

// run serves until ctx ends, and then ends what is open.
func (s stream) run(ctx context.Context) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.listen))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if s.ready != nil {
		s.ready(l.Addr().(*net.TCPAddr).AddrPort())
	}
	var open sync.WaitGroup
	defer open.Wait()
	for {
		c, err := l.AcceptTCP()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		open.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			// The client knows by the count, or by the end, if this fails.
			_ = s.serve(c)
		})
	}
}

func (s stream) serve(c *net.TCPConn) error {
	var what [1]byte
	if _, err := io.ReadFull(c, what[:]); err != nil {
		return err
	}
	switch what[0] {
	case streamSource:
		for block := streamPattern(); ; {
			if _, err := c.Write(block); err != nil {
				return err
			}
		}
	case streamSink:
		n, err := s.receive(c)
		if err != nil {
			return err
		}
		_, err = c.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
		return err
	}
	return fmt.Errorf("unknown request %q", what)
}

// receive takes pieces, each with its length before it, until one is empty, and
// returns how many bytes they were; of wrong ones, none count. An end of the
// connection would be simpler, but not every proxy lets one direction end first.
func (s stream) receive(c *net.TCPConn) (n int64, err error) {
	buf := make([]byte, 1<<20)
	for wrong := false; ; {
		var length [8]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return 0, err
		}
		piece := int64(binary.BigEndian.Uint64(length[:]))
		if piece == 0 && !wrong {
			return n, nil
		}
		if piece <= 0 {
			return 0, nil
		}
		for end := n + piece; n < end; {
			part := buf[:min(int64(len(buf)), end-n)]
			var k int
			if n < s.verify {
				k, err = c.Read(part)
				wrong = wrong || patternEnd(part[:k], n) < k
			} else {
				k, err = discard(c, part)
			}
			if err != nil {
				return 0, err
			}
			n += int64(k)
		}
	}
}

// discard drops received bytes, up to the size of p, without copying them:
// tcp(7), MSG_TRUNC.
func discard(c *net.TCPConn, p []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, _, inner = unix.Recvfrom(int(fd), p, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
		return !errors.Is(inner, unix.EAGAIN)
	})
	if err = errors.Join(err, inner); err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// patternPeriod is a prime, so that no buffer's size is a multiple of it and a
// piece that is missing or in the wrong place shows.
const patternPeriod = 251

// streamPattern is a block that can be repeated: byte number n of the stream is n
// modulo patternPeriod.
func streamPattern() []byte {
	b := make([]byte, 1024*patternPeriod)
	for i := range b {
		b[i] = byte(i % patternPeriod)
	}
	return b
}

// patternEnd returns how many bytes of p are right if its first is number at of
// the stream.
func patternEnd(p []byte, at int64) int {
	expect := byte(at % patternPeriod)
	for i, c := range p {
		if c != expect {
			return i
		}
		if expect++; expect == patternPeriod {
			expect = 0
		}
	}
	return len(p)
}
