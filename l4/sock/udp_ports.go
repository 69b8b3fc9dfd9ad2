package sock

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// LocalPorts returns the first and the last of the ports that the kernel chooses from
// for sockets that do not ask for one (net.ipv4.ip_local_port_range, which is IPv6's
// too), in this process's network namespace; its default if it cannot be read.
func LocalPorts() (first, last uint16) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &first, &last)
	}
	if err != nil || first > last {
		first, last = defaultFirst, defaultLast
	}
	everFirst.Store(min(everFirst.Load(), uint32(first)))
	everLast.Store(max(everLast.Load(), uint32(last)))
	return first, last
}

// The kernel's own range, where nothing has been set.
const defaultFirst, defaultLast = 32768, 60999

// The lowest and the highest port that have been in the range at any time that it was
// read, and in the kernel's own. Two that read it at once may lose a value: the next
// time puts that right.
var everFirst, everLast atomic.Uint32

func init() {
	everFirst.Store(defaultFirst)
	everLast.Store(defaultLast)
}

// NoFreePort reports whether an error of ConnectUDP means that every local port of
// the range is taken, which the kernel has found out by looking at each of them.
func NoFreePort(err Errno) bool { return err == unix.EAGAIN || err == unix.EADDRINUSE }
