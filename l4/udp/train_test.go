package udp_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"github.com/poise-lb/poise/l4/balance"
)

// sendTrain sends b as datagrams of segment bytes with one call (UDP_SEGMENT), as a
// QUIC client does; 0 is one datagram.
func sendTrain(c *net.UDPConn, b []byte, segment int) error {
	return sendTrainTo(c, b, segment, netip.AddrPort{})
}

func sendTrainTo(c *net.UDPConn, b []byte, segment int, to netip.AddrPort) error {
	var control []byte
	if segment > 0 {
		const udpSegment = 103 // linux/udp.h
		control = make([]byte, syscall.CmsgSpace(2))
		binary.NativeEndian.PutUint64(control, uint64(syscall.CmsgLen(2)))
		binary.NativeEndian.PutUint32(control[8:], syscall.IPPROTO_UDP)
		binary.NativeEndian.PutUint32(control[12:], udpSegment)
		binary.NativeEndian.PutUint16(control[16:], uint16(segment))
	}
	_, _, err := c.WriteMsgUDPAddrPort(b, control, to)
	return err
}

func backendAt(name string, a net.Addr) []balance.BackendSpec {
	s := balance.BackendSpec{Name: name, Weight: 100}
	s.Addr.AddrPort = netip.MustParseAddrPort(a.String())
	return []balance.BackendSpec{s}
}
