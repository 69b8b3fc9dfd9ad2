package sock

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Steer has the kernel choose between the n sockets that share a UDP address by who
// has sent a datagram and nothing else: the socket with the same number, in the order
// they were bound, at every address that is steered by the same key. The kernel's own
// choice depends on whether an address is a wildcard, so that a client would change
// sockets with it. The key should be random: who knows it can send everything to one
// socket.
//
// The program is classic BPF. The address, times the key once for each of its words,
// and the port are added; a multiplication by the golden ratio spreads what differs
// little (Knuth, The Art of Computer Programming 3, 6.4), and the upper half of the
// product counts.
func Steer(fd, n int, key uint32) Errno {
	const (
		header = 1<<32 - 0x100000 // of the IP packet: SKF_NET_OFF, linux/filter.h
		golden = 0x9e3779b1

		byteAt = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		halfAt = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		wordAt = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		toX    = unix.BPF_MISC | unix.BPF_TAX
		addX   = unix.BPF_ALU | unix.BPF_ADD | unix.BPF_X
		times  = unix.BPF_ALU | unix.BPF_MUL | unix.BPF_K
		shift  = unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K
		modulo = unix.BPF_ALU | unix.BPF_MOD | unix.BPF_K
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		store  = unix.BPF_ST
		loadX  = unix.BPF_LDX | unix.BPF_MEM
	)
	program := [...]unix.SockFilter{
		{Code: byteAt, K: header},
		{Code: shift, K: 4},
		{Code: equal, K: 6, Jt: 6},
		// IPv4, the port behind as many bytes of options as there are.
		{Code: wordAt, K: header + 12},
		{Code: times, K: key},
		{Code: store},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: header},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: header},
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 20},
		// IPv6; behind extension headers the port is not looked for.
		{Code: wordAt, K: header + 8},
		{Code: times, K: key},
		{Code: toX},
		{Code: wordAt, K: header + 12},
		{Code: addX},
		{Code: times, K: key},
		{Code: toX},
		{Code: wordAt, K: header + 16},
		{Code: addX},
		{Code: times, K: key},
		{Code: toX},
		{Code: wordAt, K: header + 20},
		{Code: addX},
		{Code: times, K: key},
		{Code: store},
		{Code: byteAt, K: header + 6},
		{Code: equal, K: unix.IPPROTO_UDP, Jt: 2},
		{Code: unix.BPF_LD | unix.BPF_IMM},
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 1},
		{Code: halfAt, K: header + 40},
		// Both.
		{Code: loadX},
		{Code: addX},
		{Code: times, K: golden},
		{Code: shift, K: 16},
		{Code: modulo, K: uint32(n)},
		{Code: unix.BPF_RET | unix.BPF_A},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return setsockopt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, unsafe.Pointer(&prog), unsafe.Sizeof(prog))
}

// Withdraw takes a socket out of the kernel's choice: what comes from now on goes to
// the next one that fits, of a wildcard address perhaps, or is refused as if there
// were none. What is in its queue stays there, and TCP handshakes that are under way
// complete. Nothing can be sent by a UDP socket afterwards. It is bound to a network
// interface that there is not, which before Linux 5.7 takes CAP_NET_RAW.
func Withdraw(fd int) Errno {
	return setsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, math.MaxInt32)
}
