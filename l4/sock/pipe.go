package sock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pipe moves bytes between sockets inside the kernel, with splice(2): they are
// neither copied nor seen by the process. The zero Pipe is none.
type Pipe struct{ r, w int32 }

// pipeSize is how much a pipe is asked to hold. A pipe has a slot per page and
// a received fragment takes a whole slot, so the default of 16 slots would hold
// no more than 23 kB of Ethernet-sized segments. A user without CAP_SYS_RESOURCE
// has 64 MiB for all pipes together (fs.pipe-user-pages-soft); beyond them a new
// one has two slots, and this size leaves room for 256.
const pipeSize = 256 << 10

// NewPipe opens a pipe: two descriptors.
func NewPipe() (Pipe, Errno) {
	var fds [2]int32
	_, _, err := unix.RawSyscall(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&fds)), unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != 0 {
		return Pipe{}, err
	}
	_, _, _ = unix.RawSyscall(unix.SYS_FCNTL, uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return Pipe{fds[0], fds[1]}, 0
}

// Valid reports whether p is a pipe.
func (p Pipe) Valid() bool { return p.w != 0 }

// Close closes both ends; what is inside is lost.
func (p Pipe) Close() {
	Close(int(p.r))
	Close(int(p.w))
}

// Fill moves up to limit bytes from socket fd into the pipe. EAGAIN means that
// the socket is empty or the pipe full; n 0 without an error is the end of the
// stream.
func (p Pipe) Fill(fd, limit int) (n int, err Errno) { return splice(fd, int(p.w), limit) }

// Empty moves up to limit bytes from the pipe to socket fd.
func (p Pipe) Empty(fd, limit int) (n int, err Errno) { return splice(int(p.r), fd, limit) }

func splice(from, to, limit int) (int, Errno) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	for {
		n, _, err := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(limit), flags)
		if err == 0 {
			return int(n), 0
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}
