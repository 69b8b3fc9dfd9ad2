package lab

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
)

// Case O-47: a datagram to a broadcast address or a group goes on once, with any number of
// workers, and is answered from the address of the network. Before, there was a copy for
// each worker.
func TestLabUDPBroadcast(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			l := lab.New(t)
			var mu sync.Mutex
			got := map[string]int{}
			count := func(what string) int {
				mu.Lock()
				defer mu.Unlock()
				return got[what]
			}
			rig.AnswerUDP(t, rig.ListenUDP(t, l.Backend1, "10.78.0.11:9001"), func(d []byte, _ netip.AddrPort) [][]byte {
				mu.Lock()
				defer mu.Unlock()
				got[string(d)]++
				return [][]byte{d}
			})
			yaml := func(one, spray string) string {
				return fmt.Sprintf("runtime: {workers: %d}\nservices:\n"+
					"  one: {listen: [%q], protocol: udp, pool: web}\n  two: {listen: [\":5141\"], protocol: udp, pool: web}\n"+
					"  three: {listen: [%q], protocol: udp, pool: web, udp: {spray: true}}\n"+
					"  four: {listen: [\"10.77.0.255:5143\"], protocol: udp, pool: web}\n"+
					"pools:\n  web: {check: {type: none}, backends: [%s]}\n",
					workers, one, spray, rig.Member("one", "10.78.0.11:9001"))
			}
			p := rig.StartOn(t, l, yaml("0.0.0.0:5140", "0.0.0.0:5142"))
			c := broadcaster(t, l.Client)
			send := func(round int) {
				for _, port := range []uint16{5140, 5141, 5142, 5143} {
					for _, to := range []string{"10.77.0.10", "10.77.0.255", "255.255.255.255", "224.0.0.1"} {
						if port == 5143 && to != "10.77.0.255" {
							continue // the only address that this one is at
						}
						if to == "224.0.0.1" && (port == 5141 || round == 2) {
							continue // dual-stack sockets do not get groups of IPv4
						}
						at := netip.AddrPortFrom(netip.MustParseAddr(to), port)
						what := fmt.Sprint(round, " ", at)
						if _, err := c.WriteToUDPAddrPort([]byte(what), at); err != nil {
							t.Fatal(err)
						}
						rig.Eventually(t, what, func() bool { return count(what) > 0 })
						if port == 5142 {
							continue
						}
						buf := make([]byte, 100)
						_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
						n, from, err := c.ReadFromUDPAddrPort(buf)
						if want := netip.AddrPortFrom(lab.FrontAddr, port); err != nil || from != want || string(buf[:n]) != what {
							t.Errorf("%q from %v, want %q from %v: %v", buf[:n], from, what, want, err)
						}
					}
				}
			}
			send(1)
			p.MustReload(t, yaml(":5140", ":5142"))
			send(2)
			p.MustReload(t, yaml("0.0.0.0:5140", "0.0.0.0:5142"))
			send(3)
			// What came last has gone through by now, and so have the copies of the others.
			mu.Lock()
			defer mu.Unlock()
			for what, n := range got {
				if n != 1 {
					t.Errorf("%d copies of %s", n, what)
				}
			}
		})
	}
}

// broadcaster opens a socket that may send to broadcast addresses, by the link to the
// balancer.
func broadcaster(t *testing.T, h *lab.Host) (c *net.UDPConn) {
	t.Helper()
	var err error
	h.Do(func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: lab.ClientAddr.AsSlice()}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if ctl := raw.Control(func(fd uintptr) {
		if err = syscall.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err == nil {
			err = syscall.BindToDevice(int(fd), lab.FrontLink)
		}
	}); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	return c
}
