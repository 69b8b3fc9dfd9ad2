package udp_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/udp"
	"github.com/poise-lb/poise/l4/wire"
)

const largest = 65507

// sizes are those of case O-23.
var sizes = []int{0, 1, 512, 1472, 1473, 2048, 8192, 8193, 9216, 65506, largest}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// digest answers with length and hash of what came.
func digest(b []byte) []byte {
	h := sha256.Sum256(b)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), h[:]...)
}

// Case O-23: a datagram goes on whole, whatever its size, and an empty one is one.
func TestEverySizeBothWays(t *testing.T) {
	for _, direction := range []string{"to the backend", "to the client"} {
		t.Run(direction, func(t *testing.T) {
			payload := map[int][]byte{}
			for _, n := range sizes {
				payload[n] = random(n)
			}
			back := serve(t, "a", "127.0.0.1:0", func(b []byte) []byte {
				if direction == "to the backend" {
					return digest(b)
				}
				return payload[int(binary.BigEndian.Uint32(b))]
			})
			p := start(t, specs(back))
			c := p.dial()
			c.SetReadBuffer(1 << 20)
			for range 2 { // the session survives each of them
				for _, n := range sizes {
					if direction == "to the backend" {
						if got := ask(t, c, string(payload[n])); got != string(digest(payload[n])) {
							t.Fatalf("%d bytes have become %d", n, binary.BigEndian.Uint32([]byte(got)))
						}
					} else if got := ask(t, c, string(binary.BigEndian.AppendUint32(nil, uint32(n)))); got != string(payload[n]) {
						t.Fatalf("%d bytes have become %d", n, len(got))
					}
				}
			}
			if p.Active() != 1 || back.senders() != 1 {
				t.Errorf("%d sessions, %d sockets", p.Active(), back.senders())
			}
			st := p.stats()
			var dropped uint64
			for i := range st.Dropped {
				dropped += st.Dropped[i].Load()
			}
			sum := uint64(0)
			for _, n := range sizes {
				sum += 2 * uint64(n)
			}
			large := st.BytesIn.Load()
			if direction == "to the client" {
				large = st.BytesOut.Load()
			}
			if n := uint64(2 * len(sizes)); dropped != 0 || st.DatagramsIn.Load() != n || st.DatagramsOut.Load() != n || large != sum {
				t.Errorf("%d dropped, %d in, %d out, %d bytes of %d", dropped, st.DatagramsIn.Load(), st.DatagramsOut.Load(), large, sum)
			}
		})
	}
}

// With its PROXY header the largest datagram does not fit one any more: it is
// dropped as a whole, and counted.
func TestTooLargeIsDroppedWhole(t *testing.T) {
	back := echo(t, "a")
	p := start(t, specs(back), func(r *udp.Route) { r.SendProxy = udp.ProxyEach })
	c := p.dial()
	if _, err := c.Write(random(largest)); err != nil {
		t.Fatal(err)
	}
	header := len(ask(t, c, "x")) - 1
	if n := p.stats().Dropped[udp.DropTooLarge].Load(); n != 1 || back.count() != 1 {
		t.Errorf("%d counted, %d arrived", n, back.count())
	}
	if got := ask(t, c, string(random(largest-header))); len(got) != largest {
		t.Errorf("the largest that fits: %d bytes", len(got))
	}
	if in := p.stats().DatagramsIn.Load(); in != 2 {
		t.Errorf("%d in", in)
	}
}

// stated takes the PROXY header off a datagram.
func stated(t *testing.T, b []byte) (h wire.ProxyHeader, payload []byte) {
	t.Helper()
	p := wire.ProxyParser{Accept: wire.AcceptV2}
	n, err := p.Next(b)
	if err != nil || n == 0 {
		t.Fatalf("no PROXY header in %q: %v", b, err)
	}
	return p.Header(), b[n:]
}

func TestProxyHeader(t *testing.T) {
	back := echo(t, "a")
	for mode, each := range map[udp.SendProxy]bool{udp.ProxyFirst: false, udp.ProxyEach: true} {
		p := start(t, specs(back), on(t, "0.0.0.0", false), func(r *udp.Route) {
			r.SendProxy = mode
			r.ProxyTLVs = []wire.TLV{{Type: 0xE0, Value: []byte("here")}}
		})
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.5"), p.addr.Port())
		c := p.dial(at)
		for i, q := range []string{"", "second", "third"} {
			got := []byte(ask(t, c, q))
			if i > 0 && !each {
				if string(got) != q {
					t.Errorf("mode %d: got %q", mode, got)
				}
				continue
			}
			h, payload := stated(t, got)
			if string(payload) != q || !h.Datagram || h.Source.String() != c.LocalAddr().String() || h.Destination != at {
				t.Errorf("mode %d: %q with %+v", mode, payload, h)
			}
			if v, ok := h.TLV(0xE0); !ok || string(v) != "here" {
				t.Errorf("field 0xE0: %q, %v", v, ok)
			}
		}
	}
}

// A header that could not be sent is not spent.
func TestProxyHeaderOutlivesALoss(t *testing.T) {
	got := make(chan []byte, 10)
	back := serve(t, "a", "127.0.0.1:0", func(b []byte) []byte { got <- bytes.Clone(b); return nil })
	p := start(t, specs(back), func(r *udp.Route) { r.SendProxy = udp.ProxyFirst })
	c := p.dial()
	c.Write(make([]byte, 65500)) // with the header it is too large
	eventually(t, "the loss", func() bool { return p.stats().Dropped[udp.DropTooLarge].Load() == 1 })
	for _, q := range []string{"second", "third"} {
		c.Write([]byte(q))
	}
	h, payload := stated(t, <-got)
	if string(payload) != "second" || h.Source.String() != c.LocalAddr().String() {
		t.Errorf("%q with %+v", payload, h)
	}
	if b := <-got; string(b) != "third" {
		t.Errorf("got %q", b)
	}
}

// A client that sends trains, and bursts of one size and of many: nothing is lost,
// cut or joined, whichever way the headers make it go.
func TestBurstsAndTrains(t *testing.T) {
	for mode := range map[udp.SendProxy]bool{udp.ProxyOff: true, udp.ProxyFirst: true, udp.ProxyEach: true} {
		got := make(chan []byte, 1000)
		back := serve(t, "a", "127.0.0.1:0", func(b []byte) []byte {
			got <- bytes.Clone(b)
			return b
		})
		p := start(t, specs(back), func(r *udp.Route) { r.SendProxy = mode })
		c := p.dial()
		c.SetReadBuffer(8 << 20)
		var want [][]byte
		send := func(segment int, datagrams ...[]byte) {
			t.Helper()
			if err := sendTrain(c, bytes.Join(datagrams, nil), segment); err != nil {
				t.Fatal(err)
			}
			want = append(want, datagrams...)
		}
		send(100, random(100), random(100), random(100), random(7))
		send(0, random(100))
		send(0, random(100))
		send(1000, random(1000), random(1000))
		send(0, random(3))
		send(0, nil)
		for range 3 {
			var train [][]byte
			for range 60 {
				train = append(train, random(500))
			}
			send(500, train...)
		}
		for i, w := range want {
			b := <-got
			if mode == udp.ProxyEach || mode == udp.ProxyFirst && i == 0 {
				_, b = stated(t, b)
			}
			if !bytes.Equal(b, w) {
				t.Fatalf("mode %d: datagram %d of %d bytes has become %d bytes", mode, i, len(w), len(b))
			}
		}
		for i, w := range want {
			if b := []byte(reply(t, c)); !bytes.HasSuffix(b, w) || mode == udp.ProxyOff && len(b) != len(w) {
				t.Fatalf("mode %d: reply %d of %d bytes has become %d bytes", mode, i, len(w), len(b))
			}
		}
		if in := p.stats().DatagramsIn.Load(); in != uint64(len(want)) {
			t.Errorf("%d datagrams counted, %d sent", in, len(want))
		}
	}
}

// A backend that sends trains, to a client that takes them one by one.
func TestTrainsToTheClient(t *testing.T) {
	back, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	back.SetDeadline(time.Now().Add(patience))
	p := start(t, backendAt("a", back.LocalAddr()))
	c := p.dial()
	c.SetReadBuffer(8 << 20)
	c.Write([]byte("go"))
	_, from, err := back.ReadFromUDPAddrPort(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for range 20 { // the first ones before the session's socket takes trains
		train := random(10*1200 + 77)
		if err := sendTrainTo(back, train, 1200, from); err != nil {
			t.Fatal(err)
		}
		want = append(want, train...)
	}
	for len(want) > 0 {
		b := []byte(reply(t, c))
		if len(b) != 1200 && len(b) != 77 || !bytes.HasPrefix(want, b) {
			t.Fatalf("%d bytes that are not the next", len(b))
		}
		want = want[len(b):]
	}
	if out := p.stats().DatagramsOut.Load(); out != 220 {
		t.Errorf("%d datagrams counted", out)
	}
}
