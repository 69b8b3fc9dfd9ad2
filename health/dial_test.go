package health

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/wire"
)

// Case O-17, the sending side: every probe to a pool that sends the PROXY header
// begins with one that says that it is our own, before the TLS ClientHello and all
// else, and works behind it.
func TestProbesSendThePROXYHeader(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cfg := tlsFor(t, ca)
	rest := map[string]struct {
		spec   Spec
		script func(net.Conn)
	}{
		"tcp":    {Spec{}, untilEnd},
		"tls":    {Spec{TLS: TLS{CA: ca.file}}, overTLS(cfg, untilEnd)},
		"http":   {Spec{}, answering(0, httpAnswer("200 OK", ""))},
		"expect": {Spec{Expect: []Step{{Send: "a"}, {Expect: Pattern{Text: "b"}}}}, speak(t, ">a", "<b")},
		"smtp":   {Spec{}, speak(t, "<220 x\r\n", ">EHLO [127.0.0.1]\r\n", "<250 x\r\n", ">QUIT\r\n", "<221 x\r\n")},
	}
	for version, header := range map[string][]byte{
		"v1": wire.AppendProxyV1Unknown(nil), "v2": wire.AppendProxyV2Local(nil), "": nil,
	} {
		for typ, tt := range rest {
			var good atomic.Bool
			s := newScripted(t, "tcp", func(conn net.Conn) {
				got := make([]byte, len(header))
				if n, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, header) {
					t.Errorf("%s %s: begins with %q, want %q", typ, version, got[:n], header)
					return
				}
				good.Store(true)
				tt.script(conn)
			})
			spec := tt.spec
			spec.Type, spec.Proxy = typ, version
			if err := s.probe(spec, longTimeout); err != nil || !good.Load() {
				t.Errorf("%s %s: %v, header seen: %v", typ, version, err, good.Load())
			}
		}
	}
}

// HTTP/2 has it before the preface, a combined check on every connection, and a
// unix socket like any other.
func TestMoreProbesSendThePROXYHeader(t *testing.T) {
	t.Parallel()
	header := wire.AppendProxyV2Local(nil)
	for name, spec := range map[string]Spec{
		"grpc": {Type: "grpc"}, "http": {Type: "http", HTTP: HTTP{Version: 2}},
		"all": {Type: AllOf, All: []Spec{{Type: "tcp"}, {Type: "expect", Expect: []Step{{Expect: Pattern{Text: "never"}}}}}},
	} {
		for _, network := range []string{"tcp", "unix"} {
			var with atomic.Int64
			s := newScripted(t, network, func(conn net.Conn) {
				got := make([]byte, len(header))
				if _, err := io.ReadFull(conn, got); err == nil && bytes.Equal(got, header) {
					with.Add(1)
				}
			})
			spec.Proxy = "v2"
			wantReason(t, s.probe(spec, longTimeout), L7RSP)
			if n := s.accepted.Load(); n == 0 || with.Load() != n {
				t.Errorf("%s: %d headers on %d connections", name, with.Load(), n)
			}
		}
	}
}

// Another port is another service, which knows nothing of the header.
func TestNoPROXYHeaderToAPortOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", func(conn net.Conn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil || first[0] != 'x' {
			return
		}
		_, _ = io.WriteString(conn, "good")
		untilEnd(conn)
	})
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{Type: "expect", Proxy: "v2", Expect: []Step{{Send: "x"}, {Expect: Pattern{Text: "good"}}}}
	wantReason(t, s.probe(spec, longTimeout), L7RSP)
	if spec.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	if err := s.probe(spec, longTimeout); err != nil {
		t.Error(err)
	}
	spec.Port = 0
	all := Spec{Type: AllOf, Proxy: "v2", All: []Spec{spec}}
	all.All[0].Port, _ = strconv.Atoi(port)
	if err := s.probe(all, longTimeout); err != nil {
		t.Errorf("one of several: %v", err)
	}
}

func TestProbesComeFromTheSource(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	s := newScripted(t, "tcp", func(conn net.Conn) {
		seen <- conn.RemoteAddr().(*net.TCPAddr).IP.String()
		_, _ = io.WriteString(conn, "220 x\r\n")
		untilEnd(conn)
	})
	for _, spec := range []Spec{
		{Type: "tcp"},
		{Type: "expect", Expect: []Step{{Expect: Pattern{Text: "220"}}}},
		{Type: AllOf, All: []Spec{{Type: "tcp"}}},
	} {
		spec.Source = netip.MustParseAddr("127.0.0.77")
		if err := s.probe(spec, longTimeout); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != "127.0.0.77" {
			t.Errorf("%s: from %s", spec.Type, got)
		}
	}
}

func TestUDPProbeComesFromTheSource(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	from := make(chan net.Addr, 1)
	go func() {
		_, addr, _ := conn.ReadFrom(make([]byte, 100))
		from <- addr
		_, _ = conn.WriteTo([]byte("pong"), addr)
	}()
	spec := pingPong
	spec.Source = netip.MustParseAddr("127.0.0.77")
	spec.Proxy = "v2" // of no meaning to datagrams
	if err := probeOnce(spec.Prober("tcp", conn.LocalAddr().String()), longTimeout); err != nil {
		t.Fatal(err)
	}
	if got := (<-from).(*net.UDPAddr).IP.String(); got != "127.0.0.77" {
		t.Errorf("from %s", got)
	}
}

// A source that this host does not have says nothing of the backend, and a unix
// socket has none.
func TestProbesFromASourceThatIsNotThere(t *testing.T) {
	t.Parallel()
	none := netip.MustParseAddr("203.0.113.77")
	s := newScripted(t, "unix", untilEnd)
	if err := s.probe(Spec{Type: "tcp", Source: none}, longTimeout); err != nil {
		t.Error(err)
	}
	for _, typ := range []string{"tcp", "udp"} {
		spec := pingPong
		spec.Type, spec.Source = typ, none
		err := probeOnce(spec.Prober("tcp", "127.0.0.1:1"), longTimeout)
		if f := (*Failure)(nil); !errors.Is(err, ErrLocal) || errors.As(err, &f) || !strings.Contains(err.Error(), "assign") {
			t.Errorf("%s: %v, want ErrLocal", typ, err)
		}
	}
}

func TestDialFailures(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{
		{Type: "tls"},
		{Type: "http"},
		{Type: "http", HTTP: HTTP{Version: 2}},
		{Type: "grpc"},
		{Type: "expect"},
		{Type: "smtp"},
	} {
		wantReason(t, probeOnce(spec.Prober("tcp", "127.0.0.1:1"), longTimeout), L4CON)
		wantReason(t, probeOnce(spec.Prober("unix", filepath.Join(t.TempDir(), "none")), longTimeout), L4CON)
	}
	full := fullQueue(t, "tcp", "")
	for _, typ := range []string{"tls", "grpc", "expect", "smtp"} {
		wantReason(t, probeOnce(Spec{Type: typ}.Prober("tcp", full), shortTimeout), L4TOUT)
	}
}

// What a check asks is part of its identity, when it asks is not.
func TestSameQuestion(t *testing.T) {
	base := Target{Network: "tcp", Address: "10.0.0.1:1", Spec: Spec{Type: "expect", Expect: []Step{{Send: "a"}}}}
	same := base
	same.Spec.Interval, same.Spec.Timeout, same.Spec.Rise, same.Spec.InitialDown = time.Hour, time.Hour, 9, true
	same.Spec.Expect = []Step{{Send: "a"}}
	if !base.sameQuestion(same) {
		t.Error("another schedule makes another question")
	}
	for i, change := range []func(*Spec){
		func(s *Spec) { s.Expect = []Step{{Send: "b"}} },
		func(s *Spec) { s.Source = netip.MustParseAddr("127.0.0.1") },
		func(s *Spec) { s.Proxy = "v1" },
		func(s *Spec) { s.TLS.NoVerify = true },
		func(s *Spec) { s.All = []Spec{{Type: "tcp"}} },
		func(s *Spec) { s.Exec.Argv = []string{"/bin/true"} },
	} {
		other := base
		change(&other.Spec)
		if base.sameQuestion(other) {
			t.Errorf("change %d makes no difference", i)
		}
	}
}
