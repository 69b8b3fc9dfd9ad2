package wire

import (
	"strings"
	"testing"
)

func TestPostgresStart(t *testing.T) {
	ssl, gss := unhex("00000008 04d2162f"), unhex("00000008 04d21630")
	for _, tt := range []struct {
		name, stream string
		want         PGStart
		at           int // bytes it takes to tell
	}{
		{"SSLRequest", ssl, PGSSLRequest, 8},
		{"SSLRequest and more", ssl + "\x16\x03\x01", PGSSLRequest, 8},
		{"GSSENCRequest", gss, PGGSSENCRequest, 8},
		{"GSSENCRequest and SSLRequest", gss + ssl, PGGSSENCRequest, 8},
		{"start in plain text", unhex("00000029 00030000") + "user\x00bob\x00\x00", PGOther, 4},
		{"start of 8 bytes", unhex("00000008 00030000"), PGOther, 5},
		{"cancel request", unhex("00000010 04d2162e 00000001 00000002"), PGOther, 4},
		{"unknown request", unhex("00000008 04d21631"), PGOther, 8},
		{"SSLRequest of another length", unhex("00000009 04d2162f 00"), PGOther, 4},
		{"ClientHello", "\x16\x03\x01\x00\x05", PGOther, 1},
		{"HTTP", "GET / HTTP/1.1\r\n", PGOther, 1},
	} {
		for i := range len(tt.stream) + 1 {
			want := PGUndecided
			if i >= tt.at {
				want = tt.want
			}
			if got := PostgresStart([]byte(tt.stream[:i])); got != want {
				t.Errorf("%s, after %d bytes: %v, want %v", tt.name, i, got, want)
			}
		}
	}
	if got := string(AppendSSLRequest([]byte("x"))); got != "x"+ssl {
		t.Errorf("SSLRequest: %q", got)
	}
}

// What is decided stays so, and PostgresStartLen bytes are enough.
func FuzzPostgresStart(f *testing.F) {
	for _, s := range []string{"", "\x00\x00\x00\x08\x04\xd2\x16\x2f", "\x00\x00\x00\x08\x04\xd2\x16\x30x", "\x00\x00\x00\x08\x04\xd2\x16\x31", "\x16\x03\x01"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		last := PGUndecided
		for i := range len(b) + 1 {
			got := PostgresStart(b[:i])
			if last != PGUndecided && got != last {
				t.Fatalf("%q: %v, then %v", b[:i], last, got)
			}
			last = got
		}
		if last == PGUndecided && len(b) >= PostgresStartLen {
			t.Fatalf("%q: undecided", b)
		}
		if want := strings.HasPrefix(string(b), string(AppendSSLRequest(nil))); want != (last == PGSSLRequest) {
			t.Fatalf("%q: %v", b, last)
		}
	})
}
