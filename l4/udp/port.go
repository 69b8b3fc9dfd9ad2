package udp

import (
	"net/netip"

	"github.com/poise-lb/poise/l4/sock"
)

// A session's socket has a port that the kernel chooses, or one that another session
// gives up for it.

// maxUnusable is how many ports of the kernel's choice a session turns down.
const maxUnusable = 32

// backend returns the address of the session's backend.
func (s *session) backend() netip.AddrPort { return s.lease.Backend().Addr().AddrPort }

// takePort takes a port out of the route's budget.
func (s *session) takePort() bool {
	if !s.route.ports.take() {
		return false
	}
	s.ports = s.route.ports
	return true
}

func (c *connection) givePort() {
	if c.ports != nil {
		c.ports.give()
		c.ports = nil
	}
}

// choosePort opens a socket to a backend at a port that may be used towards it. Those
// that may not are kept until one is found, so that the kernel offers others.
func (s *session) choosePort(backend netip.AddrPort, source netip.Addr, transparent bool) (fd int, errno sock.Errno) {
	w := s.worker
	if w.server.rests.scarce(backend) {
		return -1, sock.EAGAIN
	}
	var unusable [maxUnusable]int
	n := 0
	for {
		fd, errno = sock.ConnectUDP(backend, source, transparent)
		if errno != 0 || s.mayUse(fd, backend) {
			break
		}
		if n == maxUnusable || !w.server.Descriptors.Take(1) {
			sock.Close(fd)
			fd, errno = -1, sock.EAGAIN
			break
		}
		unusable[n] = fd
		n++
	}
	for _, fd := range unusable[:n] {
		sock.Close(fd)
	}
	w.server.Descriptors.Give(int64(n))
	if sock.NoFreePort(errno) {
		if n > 0 {
			w.server.rests.noteScarcity(backend)
		} else if s.ports != nil {
			s.ports.runDry()
		}
	}
	return fd, errno
}

// inheritPort opens a socket to a backend at the port of a session that gives way.
func (s *session) inheritPort(backend netip.AddrPort, source netip.Addr) (fd int, errno sock.Errno) {
	port := s.worker.makePort(s.receiver, s.route.ports, backend)
	if port == 0 || !s.takePort() {
		return -1, sock.EAGAIN
	}
	fd, errno = sock.ConnectUDPFrom(backend, source, port)
	if errno == 0 && !s.mayUse(fd, backend) {
		sock.Close(fd)
		return -1, sock.EAGAIN
	}
	return fd, errno
}

// mayUse reports whether a socket may be the session's: what comes to its port from the
// backend is then meant for this session alone.
func (s *session) mayUse(fd int, backend netip.AddrPort) bool {
	srv := s.worker.server
	s.local = sock.LocalAddr(fd)
	if sock.IsSame(s.local, backend) || srv.rests.has(s.local, backend) || s.route.Pool.Has(s.local) {
		return false // of a backend of the pool it would keep its own port
	}
	srv.sockets.add(s.local, backend)
	if srv.sockets.has(backend, s.local) {
		// Two dead backends on this host, and each one's port is the other's session's:
		// they would be each other's backend.
		srv.sockets.remove(s.local, backend)
		return false
	}
	return true
}

// closeSocket closes a socket that mayUse has found fit.
func (w *worker) closeSocket(fd int, local, backend netip.AddrPort) {
	w.server.sockets.remove(local, backend)
	sock.Close(fd)
}
