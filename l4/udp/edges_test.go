package udp_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/poise-lb/poise/l4/udp"
)

// unheaded returns a datagram without its PROXY header of version 2.
func unheaded(t *testing.T, b []byte) []byte {
	if len(b) < 16 || !bytes.HasPrefix(b, []byte("\r\n\r\n\x00\r\nQUIT\n")) {
		t.Errorf("a datagram of %d bytes has no header", len(b))
		return b
	}
	return b[16+int(b[14])<<8+int(b[15]):]
}

// Case O-52: datagrams that the kernel joins keep their edges and their order, both
// ways, also where each gets a header of its own or is balanced by itself.
func TestTrainsKeepTheirEdges(t *testing.T) {
	trains := []struct{ bytes, segment int }{
		{64 * 100, 100}, {60 * 1000, 1000}, {10*1200 + 1, 1200}, {60, 1}, {499, 500}, {2*700 + 1, 700},
	}
	for name, adjust := range map[string]func(*udp.Route){
		"sessions":         func(r *udp.Route) {},
		"first header":     func(r *udp.Route) { r.SendProxy = udp.ProxyFirst },
		"headers":          func(r *udp.Route) { r.SendProxy = udp.ProxyEach },
		"spray":            func(r *udp.Route) { r.Spec.Spray = true },
		"spray of headers": func(r *udp.Route) { r.Spec.Spray, r.SendProxy = true, udp.ProxyEach },
	} {
		t.Run(name, func(t *testing.T) {
			var r udp.Route
			adjust(&r)
			var mu sync.Mutex
			var got [][]byte
			p := start(t, specs(serve(t, "a", "127.0.0.1:0", func(b []byte) []byte {
				mu.Lock()
				defer mu.Unlock()
				if r.SendProxy == udp.ProxyEach || r.SendProxy == udp.ProxyFirst && len(got) == 0 {
					b = unheaded(t, b)
				}
				b = bytes.Clone(b)
				got = append(got, b)
				return b // not nil, even if it is empty
			})), adjust)
			c := p.dial()
			var want [][]byte
			answered := 0
			buf := make([]byte, 1<<16)
			for i, train := range trains {
				payload := bytes.Repeat([]byte{byte('a' + i)}, train.bytes)
				for at := range payload {
					payload[at] += byte(at/train.segment) % 26
				}
				if err := sendTrain(c, payload, train.segment); err != nil {
					t.Fatal(err)
				}
				for rest := payload; len(rest) > 0; rest = rest[min(train.segment, len(rest)):] {
					want = append(want, rest[:min(train.segment, len(rest))])
				}
				for _, one := range [][]byte{{}, []byte("short")} {
					if _, err := c.Write(one); err != nil {
						t.Fatal(err)
					}
					want = append(want, one)
				}
				eventually(t, fmt.Sprintf("%d datagrams", len(want)), func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(got) >= len(want)
				})
				for ; !r.Spec.Spray && answered < len(want); answered++ {
					n, err := c.Read(buf)
					if err != nil {
						t.Fatalf("reply %d of %d: %v", answered, len(want), err)
					}
					if !bytes.Equal(buf[:n], want[answered]) {
						t.Fatalf("reply %d has %d bytes, want %d: %.20q", answered, n, len(want[answered]), buf[:n])
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(got) != len(want) {
				t.Fatalf("%d datagrams came of %d", len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("datagram %d has %d bytes, want %d: %.20q", i, len(got[i]), len(want[i]), got[i])
				}
			}
		})
	}
}
