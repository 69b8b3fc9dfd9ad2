package sock

import (
	"errors"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BindOptions are what sockets of every protocol that wait for clients have in common.
type BindOptions struct {
	V6Only   bool // [::] takes no IPv4 clients
	Freebind bool // the address need not exist on this host
	Share    bool // several sockets of this process share the address (SO_REUSEPORT)
}

type option struct{ level, name, value int }

// bindSocket opens a socket of the kind bound to addr; set sets what belongs to the
// protocol. Where the kernel has no IPv6, the dual-stack wildcard is that of IPv4.
// Errors are *os.SyscallError around an Errno.
func bindSocket(kind int, addr netip.AddrPort, o BindOptions, set func(fd, family int) Errno) (fd int, err error) {
	fd, err = bindOnce(kind, addr, o, set)
	if addr.Addr() == netip.IPv6Unspecified() && !o.V6Only && errors.Is(err, unix.EAFNOSUPPORT) {
		return bindOnce(kind, netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port()), o, set)
	}
	return fd, err
}

func bindOnce(kind int, addr netip.AddrPort, o BindOptions, set func(fd, family int) Errno) (fd int, err error) {
	var sa unix.RawSockaddrAny
	size, family := encode(&sa, addr)
	fd, errno := open(family, kind)
	if errno != 0 {
		return -1, os.NewSyscallError("socket", errno)
	}
	if errno = o.set(fd, family); errno == 0 {
		errno = set(fd, family)
	}
	if errno != 0 {
		Close(fd)
		return -1, os.NewSyscallError("setsockopt", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa)), size); errno != 0 {
		Close(fd)
		return -1, os.NewSyscallError("bind", errno)
	}
	return fd, nil
}

func (o BindOptions) set(fd, family int) Errno {
	var options []option
	if o.Share {
		options = append(options, option{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1})
	}
	if o.Freebind {
		// IP_FREEBIND covers IPv6 sockets too.
		options = append(options, option{unix.IPPROTO_IP, unix.IP_FREEBIND, 1})
	}
	if family == unix.AF_INET6 {
		v6only := 0
		if o.V6Only {
			v6only = 1
		}
		options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, v6only})
	}
	return setAll(fd, options)
}

func setAll(fd int, options []option) Errno {
	for _, o := range options {
		if err := setsockoptInt(fd, o.level, o.name, o.value); err != 0 {
			return err
		}
	}
	return 0
}

// BindRemedy says what can be done about an error of Bind or BindUDP, in words that
// follow it; "" if it is not known. The command is the one that shows who has the port.
func BindRemedy(err error, port uint16, command string) string {
	switch {
	case errors.Is(err, EADDRINUSE):
		remedy := "; another process listens there (" + command + " shows which)"
		if first, last := LocalPorts(); first <= port && port <= last {
			remedy += ", or a socket that was given a free port has it, one of Poise's own towards a backend perhaps: " +
				"reserve the port (net.ipv4.ip_local_reserved_ports)"
		}
		return remedy
	case errors.Is(err, EADDRNOTAVAIL):
		return "; this host does not have the address: add it, or set freebind: true"
	case errors.Is(err, EACCES), errors.Is(err, EPERM):
		return "; ports below 1024 need CAP_NET_BIND_SERVICE"
	}
	return ""
}
