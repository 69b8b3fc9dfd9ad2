package loadgen

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// handshakes is how long a handshake whose SYN was let in may take to end up in
// the accept queue. On one host it is microseconds.
const handshakes = 2 * time.Millisecond

// closeGently closes ln without resetting anybody: the kernel resets what waits
// in the accept queue of a listener that closes, which a client of a stopped
// server sees as an error although a retry elsewhere was possible a moment
// earlier. So new SYNs are dropped first, then the queue is emptied into
// accepted, then ln closes. The caller no longer accepts on ln.
func closeGently(ln *net.TCPListener, accepted func(*net.TCPConn)) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	if err := control(raw.Control, dropSYNs); err != nil {
		return errors.Join(fmt.Errorf("refusing new connections: %w", err), ln.Close())
	}
	for waiting := true; waiting; {
		_ = ln.SetDeadline(time.Now().Add(handshakes))
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				break // the deadline; anything else ends the next round too
			}
			accepted(c)
		}
		err := control(raw.Control, func(fd int) error {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			waiting = n > 0 && poll[0].Revents == unix.POLLIN
			return err
		})
		if err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return ln.Close()
}

// dropSYNs attaches a classic BPF filter that drops segments with SYN and
// without ACK. A filter on a TCP socket sees the segment from its TCP header
// on; the flags are byte 13 (RFC 9293 section 3.1).
func dropSYNs(fd int) error {
	const syn, ack = 0x02, 0x10
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: syn},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

// control runs f on the descriptor behind a RawConn's Control.
func control(control func(func(fd uintptr)) error, f func(fd int) error) error {
	var inner error
	if err := control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
