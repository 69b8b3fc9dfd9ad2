package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/sock"
)

// When the kernel has had no port, no more are asked for than sessions give back,
// until the drought is over.
func TestDrought(t *testing.T) {
	p := new(ports)
	p.limit.Store(100)
	for range 50 {
		p.take()
	}
	if p.isDry() || !p.take() {
		t.Fatal("there are enough")
	}
	p.runDry() // the last one was taken in vain
	p.give()
	if left := time.Duration(p.dry.Load()) - time.Since(started); left > drought {
		t.Errorf("it would last %v", left)
	}
	p.dry.Store(int64(time.Since(started) + time.Hour)) // however slow this test is
	if p.take() {
		t.Error("one more is asked for")
	}
	p.give()
	if !p.take() {
		t.Error("one that was given back cannot be had")
	}
	p.dry.Store(1) // long ago
	if !p.take() || p.isDry() || p.dry.Load() != 0 {
		t.Error("the drought does not end")
	}
	for range 100 {
		p.take()
	}
	if n := p.used.Load(); n != 100 {
		t.Errorf("%d of 100", n)
	}
}

// Each source address has ports of its own, three quarters of what there are.
func TestPortsOfSources(t *testing.T) {
	s := &Server{ports: map[netip.Addr]*ports{}}
	a, b := netip.Addr{}, netip.MustParseAddr("127.0.0.9")
	s.equip([]Route{{Source: a}, {Source: b}, {Source: b}})
	first, last := sock.LocalPorts()
	pa, pb := s.ports[a], s.ports[b]
	if want := int64(last-first+1) * 3 / 4; pa == pb || pa.limit.Load() != want || pb.limit.Load() != want {
		t.Errorf("%v and %v of %d", pa.limit.Load(), pb.limit.Load(), want)
	}
	pa.take()
	if s.equip([]Route{{Source: a}}); s.ports[a] != pa || pa.used.Load() != 1 {
		t.Error("a reload forgets what is used")
	}
}

func TestDropReasons(t *testing.T) {
	for errno, want := range map[sock.Errno]DropReason{
		sock.EAGAIN: DropBufferFull, sock.EMSGSIZE: DropTooLarge, sock.EPERM: DropSendFailed,
	} {
		if got := dropReason(errno); got != want {
			t.Errorf("%v: %v, want %v", errno, got, want)
		}
	}
}
