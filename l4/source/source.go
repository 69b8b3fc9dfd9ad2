// Package source says who counts as one where failures are counted by client.
package source

import "net/netip"

// Of returns the source that a client's address belongs to: an IPv4 address, or the IPv6
// network of 64 bits, all of which one host has at its disposal.
func Of(client netip.Addr) netip.Addr {
	a := client.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64) // fails only for too many bits
		return p.Addr()
	}
	return a
}
