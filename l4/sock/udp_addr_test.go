package sock

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestControlRoundTrip(t *testing.T) {
	for _, c := range []struct {
		family  uint16
		addr    string
		index   uint32
		segment int
	}{
		{unix.AF_INET6, "2001:db8::1", 0, 0},
		{unix.AF_INET6, "fe80::1", 7, 1200},
		{unix.AF_INET6, "::ffff:192.0.2.1", 0, 0},
	} {
		local := Local{netip.MustParseAddr(c.addr).As16(), c.index}
		var room control
		b := appendLocal(room.bytes()[:0], c.family, local)
		got, segment, _ := parseControl(b)
		if got != local || segment != 0 {
			t.Errorf("%s: got %v, %d", c.addr, got, segment)
		}
		if want := netip.MustParseAddr(c.addr).Unmap(); got.Addr() != want {
			t.Errorf("%v, want %v", got.Addr(), want)
		}
	}
	var room control
	if b := appendLocal(room.bytes()[:0], unix.AF_INET, Local{}); len(b) != 0 {
		t.Error("an unknown address is written")
	}
	b := appendSegment(appendLocal(room.bytes()[:0], unix.AF_INET6, Local{netip.IPv6Unspecified().As16(), 1}), 1200)
	if len(b) > controlSize {
		t.Errorf("%d bytes", len(b))
	}
}

// What the kernel says about a train has another type and size than what it is told.
func groControl(segment int32) []byte {
	b, data := appendHeader(make([]byte, 0, controlSize), unix.SOL_UDP, unix.UDP_GRO, 4)
	binary.NativeEndian.PutUint32(data, uint32(segment))
	return b
}

func TestParseControl(t *testing.T) {
	if _, segment, _ := parseControl(groControl(1200)); segment != 1200 {
		t.Errorf("segment %d", segment)
	}
	if _, segment, _ := parseControl(groControl(-1)); segment != 0 {
		t.Errorf("segment %d", segment)
	}
	both := appendLocal(append(make([]byte, 0, controlSize), groControl(9)...), unix.AF_INET, Local{addr: netip.MustParseAddr("192.0.2.1").As16()})
	// The sender's address is the second of three words, the receiver's too.
	local, segment, _ := parseControl(both)
	if segment != 9 || local.Addr() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("got %v, %d", local.Addr(), segment)
	}
}

// Nothing can be sent from a group's address; of a broadcast on a socket of both
// families the kernel tells twice where it came to, and the second can be.
func TestControlOfManyReceivers(t *testing.T) {
	group := Local{addr: netip.MustParseAddr("ff02::1").As16(), index: 3}
	if got, _, shared := parseControl(appendLocal(make([]byte, 0, controlSize), unix.AF_INET6, group)); got != (Local{}) || !shared {
		t.Errorf("from %v, shared: %v", got, shared)
	}
	all, ours := Local{addr: netip.MustParseAddr("::ffff:192.0.2.255").As16()}, Local{addr: netip.MustParseAddr("::ffff:192.0.2.1").As16()}
	b := appendLocal(append(make([]byte, 0, controlSize), groControl(9)...), unix.AF_INET6, all)
	b = appendLocal(b, unix.AF_INET, ours)
	copy(b[len(b)-unix.CmsgSpace(unix.SizeofInet4Pktinfo)+unix.SizeofCmsghdr+8:], all.addr[12:])
	if got, segment, shared := parseControl(b); got != ours || segment != 9 || !shared {
		t.Errorf("from %v, segment %d, shared: %v", got, segment, shared)
	}
	one := appendLocal(make([]byte, 0, controlSize), unix.AF_INET, ours)
	copy(one[unix.SizeofCmsghdr+8:], ours.addr[12:])
	if got, _, shared := parseControl(one); got != ours || shared {
		t.Errorf("from %v, shared: %v", got, shared)
	}
}

func FuzzParseControl(f *testing.F) {
	f.Add(groControl(1200))
	f.Add(appendLocal(make([]byte, 0, controlSize), unix.AF_INET6, Local{addr: [16]byte{1}, index: 1}))
	f.Add(appendLocal(make([]byte, 0, controlSize), unix.AF_INET, Local{addr: [16]byte{15: 1}}))
	f.Add(appendLocal(groControl(1)[:24:controlSize], unix.AF_INET, Local{addr: [16]byte{15: 1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		local, segment, _ := parseControl(b)
		if segment < 0 {
			t.Errorf("segment %d", segment)
		}
		// Whatever address it found can be replied from, and reads the same again.
		var room control
		if again, _, _ := parseControl(appendLocal(room.bytes()[:0], unix.AF_INET6, local)); again.addr != local.addr {
			t.Errorf("address %v, then %v", local, again)
		}
	})
}
