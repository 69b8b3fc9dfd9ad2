package health

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAllProbe(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", speak(t, "<220 ready\r\n"))
	good := Spec{Type: "expect", Expect: []Step{{Expect: Pattern{Text: "ready"}}}}
	bad := Spec{Type: "expect", Expect: []Step{{Expect: Pattern{Text: "steady"}}}}
	for _, tt := range []struct {
		name string
		all  []Spec
		want Reason
		err  string
	}{
		{"none", nil, "", ""},
		{"all well", []Spec{{Type: "tcp"}, good, {Type: "none"}}, "", ""},
		{"the last fails", []Spec{{Type: "tcp"}, bad}, L7RSP, `L7RSP: expect: answered "220 ready\r\n" and closed`},
		{"the first failure counts", []Spec{bad, {Type: "smtp"}}, L7RSP, "L7RSP: expect: "},
		{"a port of its own", []Spec{good, {Type: "tcp", Port: 1}}, L4CON, "L4CON: tcp: connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantOutcome(t, s.probe(Spec{Type: AllOf, All: tt.all}, longTimeout), tt.want, tt.err)
		})
	}
}

// The ones after a failure are not asked, and what is of this host stays so.
func TestAllProbeStopsAtAFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	s := newScripted(t, "tcp", func(net.Conn) {})
	err := s.probe(Spec{Type: AllOf, All: []Spec{
		{Type: "tls", TLS: TLS{CA: "/nonexistent"}}, shell(`touch "$1"`, file),
	}}, longTimeout)
	if f := (*Failure)(nil); !errors.Is(err, ErrLocal) || errors.As(err, &f) {
		t.Errorf("%v, want ErrLocal", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the second check was run")
	}
}

// Farewells do not count as time to answer, and the earliest certificate does.
func TestAllProbeNotes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	secure := func(expires time.Time) *scripted {
		cfg := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, expires, "127.0.0.1")}}
		return newScripted(t, "tcp", overTLS(cfg, func(conn net.Conn) { untilEnd(conn); time.Sleep(2 * farewellTime) }))
	}
	port := func(s *scripted) int {
		_, p, _ := net.SplitHostPort(s.address)
		n, _ := net.LookupPort("tcp", p)
		return n
	}
	first, second := secure(soon), secure(soon.Add(time.Hour))
	check := TLS{CA: ca.file}
	spec := Spec{Type: AllOf, All: []Spec{
		{Type: "tls", TLS: check, Port: port(second)}, {Type: "tls", TLS: check, Port: port(first)}, {Type: "tls", TLS: check, Port: port(second)},
	}}
	ctx, cancel := contextOf(longTimeout)
	defer cancel()
	start := time.Now()
	res := timed(ctx, spec.Prober("tcp", "127.0.0.1:1"), true)
	total := time.Since(start)
	if res.err != nil || !res.certExpires.Equal(soon) {
		t.Errorf("%v, certificate expires %v, want %v", res.err, res.certExpires, soon)
	}
	if total < 3*farewellTime || res.took > total-2*farewellTime {
		t.Errorf("took %v of %v, of which farewells were three times %v", res.took, total, farewellTime)
	}
}
