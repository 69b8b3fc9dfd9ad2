package udp_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/poise-lb/poise/l4/udp"
)

// A train of datagrams of one byte is sixty-four of them, and a batch sixty-four
// trains: with a header before each, thousands of messages from one peer. All of them
// go on, a few at a time: so many are taken before others get a turn.
func TestTurnIsBoundedByWork(t *testing.T) {
	const most = 200
	for name, adjust := range map[string]func(*udp.Route){
		"sessions": func(r *udp.Route) {},
		"headers":  func(r *udp.Route) { r.SendProxy = udp.ProxyEach },
		"spray":    func(r *udp.Route) { r.Spec.Spray = true },
	} {
		t.Run(name, func(t *testing.T) {
			back := sink(t, "a")
			p := startOn(t, 1, specs(back), adjust)
			clients := make([]*net.UDPConn, 7) // more, and the backend's buffer is full
			for i := range clients {
				clients[i] = p.dial()
			}
			sent := 0
			first, more := p.Receive(p.route.Spec.Listen[0], func() {
				for _, c := range clients {
					if err := sendTrain(c, make([]byte, 64), 1); err != nil {
						t.Error(err)
					}
					sent += 64
				}
			})
			if first == 0 || first > most || !more {
				t.Errorf("%d datagrams are taken at once, more: %v", first, more)
			}
			eventually(t, fmt.Sprintf("all %d", sent), func() bool { return back.count() == sent })
			if st := p.stats(); int(st.DatagramsIn.Load()) != sent {
				t.Errorf("%d are counted", st.DatagramsIn.Load())
			}
		})
	}
}

// Two services with full queues share the tray of a loop: neither loses anything.
func TestTurnsOfTwoListeners(t *testing.T) {
	back := sink(t, "a")
	p := startOn(t, 1, specs(back), func(r *udp.Route) {
		r.SendProxy = udp.ProxyEach
		r.Spec.Listen = append(r.Spec.Listen, r.Spec.Listen[0])
		r.Spec.Listen[1].Addr = netip.AddrPortFrom(r.Spec.Listen[0].Addr.Addr(), freePort(t))
	})
	sent := 0
	for range 20 {
		p.Receive(p.route.Spec.Listen[0], func() {
			for _, l := range p.route.Spec.Listen {
				c := p.dial(l.Addr)
				for range 3 {
					if err := sendTrain(c, make([]byte, 64), 1); err != nil {
						t.Error(err)
					}
					sent += 64
				}
			}
		})
		eventually(t, fmt.Sprintf("all %d", sent), func() bool { return back.count() == sent })
	}
}
