package sock_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/l4/sock"
)

// Why each datagram was not taken is told. A UDP socket on loopback is never full; one
// of the same kind that nobody reads from is soon.
func TestSplitIntoAFullSocket(t *testing.T) {
	both, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(both[0])
	defer sock.Close(both[1])
	for {
		if _, errno := sock.Write(both[0], []byte("x")); errno == sock.EAGAIN {
			break
		} else if errno != 0 {
			t.Fatal(errno)
		}
	}
	out := sock.NewOutbox(1)
	out.Add(&sock.Destination{}, nil, []byte("aabbc"), 2)
	var sizes []int
	out.Split(both[0], func(why sock.Errno, bytes int) {
		sizes = append(sizes, bytes)
		if why != sock.EAGAIN {
			t.Error(why)
		}
	})
	if !slices.Equal(sizes, []int{2, 2, 1}) || !out.Empty() {
		t.Errorf("lost %v", sizes)
	}
}
