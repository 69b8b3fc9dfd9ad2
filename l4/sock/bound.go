package sock

import "golang.org/x/sys/unix"

// BoundUnsent bounds how much waits in a TCP socket until the peer's window lets it go
// (TCP_NOTSENT_LOWAT): writes take no more, and Writable comes again when half of it
// has gone. What is on its way to the peer is not counted, so a fast and distant one
// still has all of it.
// The kernel's own bound grows to megabytes.
func BoundUnsent(fd, size int) Errno {
	return setsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, size)
}

// BoundUnread bounds how much of the peer waits in a TCP socket to be read, and with
// it what is on its way: the window it is given, which else grows to megabytes. The
// kernel allows no more than net.core.rmem_max.
func BoundUnread(fd, size int) Errno {
	// The kernel doubles the number, for what packets cost besides their bytes. That
	// the window may grow to it has to be said too, because with a buffer that is set
	// it stays what it was when the connection was made.
	if err := setsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != 0 {
		return err
	}
	return setsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, size)
}
