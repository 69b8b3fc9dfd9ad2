package udp

import "net/netip"

// RanDry reports whether the kernel has had no port at a source address.
func (s *Server) RanDry(source netip.Addr) bool { return s.ports[source].dry.Load() != 0 }
