package wire

import (
	"encoding/hex"
	"testing"
)

func TestHeadersOfOurOwnConnections(t *testing.T) {
	for _, tt := range []struct {
		name string
		add  func([]byte) []byte
		want string // hex
	}{
		{"v1", AppendProxyV1Unknown, hex.EncodeToString([]byte("PROXY UNKNOWN\r\n"))},
		{"v2", AppendProxyV2Local, "0d0a0d0a000d0a515549540a" + "20" + "00" + "0000"}, // case O-17
	} {
		if got := hex.EncodeToString(tt.add(nil)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		// They append, and where there is room without allocating.
		room := append(make([]byte, 0, 64), "before"...)
		if got := tt.add(room); string(got[:6]) != "before" || &got[0] != &room[0] {
			t.Errorf("%s: %q is not an extension of %q", tt.name, got, room)
		}
		if n := testing.AllocsPerRun(100, func() { tt.add(room) }); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}
