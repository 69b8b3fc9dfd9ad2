package tcp_test

import (
	"crypto/tls"
	"io"
	"slices"
	"testing"
	"time"
)

// A client that has not turned Nagle's algorithm off keeps its request until its
// Finished is acknowledged. A delayed acknowledgement takes 40 ms, most of the time: if a
// third of the exchanges is much quicker, on however busy a machine, it is not delayed.
func TestFinishedIsAcknowledged(t *testing.T) {
	const delay = 40 * time.Millisecond // TCP_DELACK_MIN of Linux
	for name, c := range map[string]struct {
		version uint16
		resumed bool
	}{
		"TLS 1.3":          {tls.VersionTLS13, false},
		"TLS 1.3, resumed": {tls.VersionTLS13, true},
		"TLS 1.2":          {tls.VersionTLS12, false},
		"TLS 1.2, resumed": {tls.VersionTLS12, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := mode{front: true}
			p := m.through(t, func(e end) { io.Copy(e, e) })
			config := clientConfig()
			config.MaxVersion = c.version
			if c.resumed {
				config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			}
			exchange := func() (took time.Duration, resumed bool) {
				raw := p.dial()
				defer raw.Close()
				raw.SetNoDelay(false)
				e := tls.Client(raw, config)
				if err := e.Handshake(); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				e.Write([]byte("ping"))
				if _, err := io.ReadFull(e, make([]byte, 4)); err != nil {
					t.Fatal(err)
				}
				return time.Since(began), e.ConnectionState().DidResume
			}
			if c.resumed {
				exchange()
			}
			quick, all := 0, []time.Duration{}
			for range 30 {
				took, resumed := exchange()
				if resumed != c.resumed {
					t.Fatalf("resumed is %v", resumed)
				}
				if all = append(all, took); took < delay/2 {
					quick++
				}
			}
			slices.Sort(all)
			if t.Logf("median %v", all[len(all)/2]); quick < len(all)/3 {
				t.Errorf("%d of %d exchanges took less than %v: %v", quick, len(all), delay/2, all)
			}
		})
	}
}
