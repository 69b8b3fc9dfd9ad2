package loadgen

import (
	"testing"
	"time"
)

func TestTitle(t *testing.T) {
	for want, o := range map[string]Options{
		"1 client to a:1, for 10s, 1 byte each, a connection for each": {
			Clients: 1, Addr: "a:1", Duration: 10 * time.Second, Size: 1, PerConnection: 1,
		},
		"50 clients to a:1, 2000 requests/s, for 1s, 7 requests, 64 bytes each, one connection per client": {
			Clients: 50, Addr: "a:1", Rate: 2000, Duration: time.Second, Requests: 7, Size: 64,
		},
		"2 clients to a:1, 64 bytes each, 9 on a socket": {
			UDP: true, Clients: 2, Addr: "a:1", Size: 64, PerConnection: 9,
		},
	} {
		if got := o.Title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestShortDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                        "0µs",
		87 * time.Microsecond:    "87µs",
		1234 * time.Microsecond:  "1.23ms",
		40960 * time.Microsecond: "41.0ms",
		402 * time.Millisecond:   "402ms",
		1250 * time.Millisecond:  "1.25s",
		75 * time.Second:         "75.0s",
	} {
		if got := Short(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
