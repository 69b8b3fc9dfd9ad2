package udp

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Access rules and limits mean the same for sessions as for connections.
func TestUDPAdmission(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	a := rig.Member("a", rig.StartTeller(t, "a"))
	blocked := filepath.Join(t.TempDir(), "blocked")
	if err := os.WriteFile(blocked, []byte("# nobody yet\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := rig.Start(t, rig.JSONLog+rig.WebConfig(listen, "protocol: udp, udp: {idle: 1h}, limits: {per_source: 2}, "+
		"access: {allow: [127.0.0.0/28], deny: [127.0.0.3], deny_files: ["+blocked+"]}", "check: {type: none}", a))
	one, two := rig.DialUDP(t, listen, "127.0.0.2"), rig.DialUDP(t, listen, "127.0.0.2")
	one.MustAsk(t)
	two.MustAsk(t)
	rig.DialUDP(t, listen, "127.0.0.2").Refused(t, p, "refused_limit")
	rig.DialUDP(t, listen, "127.0.0.4").MustAsk(t)
	rig.DialUDP(t, listen, "127.0.0.3").Refused(t, p, "refused_acl")
	rig.DialUDP(t, listen, "127.0.0.77").Refused(t, p, "refused_acl")

	// A reload reads the files. A client with a session keeps it, and counts.
	if err := os.WriteFile(blocked, []byte("127.0.0.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rig.DialUDP(t, listen, "127.0.0.5").MustAsk(t)
	p.MustReload(t, rig.JSONLog+rig.WebConfig(listen, "protocol: udp, udp: {idle: 300ms}, limits: {per_source: 2}, "+
		"access: {allow: [127.0.0.0/28], deny: [127.0.0.3], deny_files: ["+blocked+"]}", "check: {type: none}", a))
	rig.DialUDP(t, listen, "127.0.0.5").Refused(t, p, "refused_acl")
	rig.DialUDP(t, listen, "127.0.0.2").Refused(t, p, "refused_limit")
	one.MustAsk(t) // takes up the new limit
	two.MustAsk(t)
	for _, c := range []*rig.UDPClient{one, two} {
		if e := p.EndOf(t, c); e.Client != "127.0.0.2" || e.Outcome != "ok" {
			t.Errorf("%+v", e)
		}
	}
	rig.DialUDP(t, listen, "127.0.0.2").MustAsk(t) // there is room again

	// Sessions a second: of one source, and of all.
	for limits, want := range map[string]int{"source_rate: 2": 4, "rate: 2": 2} {
		p.MustReload(t, rig.JSONLog+rig.WebConfig(listen, "protocol: udp, udp: {idle: 1h}, limits: {"+limits+"}", "check: {type: none}", a))
		before := p.Metrics(t)
		for range 6 {
			for _, source := range []string{"127.0.0.8", "127.0.0.9"} {
				if _, err := rig.DialUDP(t, listen, source).Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
			}
		}
		const total, refused = `poise_service_connections_total{service="web"}`, `poise_service_refused_total{reason="refused_rate",service="web"}`
		var m rig.Series
		rig.Eventually(t, "12 attempts", func() bool { m = p.Metrics(t); return m[total]-before[total] == 12 })
		answered := 12 - int(m[refused]-before[refused])
		// On a slow machine a second may pass meanwhile, or two.
		if answered < want || answered > 3*want {
			t.Errorf("%s: %d sessions, want %d", limits, answered, want)
		}
	}
}

// A client address keeps its backend, whatever its port and whichever balancer it asks,
// and goes elsewhere only if that is out.
func TestUDPMaglev(t *testing.T) {
	t.Parallel()
	listen, second := rig.UDPAddr(t), rig.UDPAddr(t)
	var members []string
	for _, name := range []string{"a", "b", "c", "d"} {
		members = append(members, rig.Member(name, rig.StartTeller(t, name)))
	}
	p := rig.Start(t, rig.UDPConfig(listen, "idle: 1h", "balance: maglev, check: {type: none}", members...))
	rig.Start(t, rig.UDPConfig(second, "idle: 1h", "balance: maglev, check: {type: none}", members[3], members[1], members[0], members[2]))
	const clients = 60
	want := map[string]string{}
	shares := map[string]int{}
	for i := range clients {
		source := fmt.Sprintf("127.0.%d.%d", i%7, i+2)
		name, _ := rig.DialUDP(t, listen, source).MustAsk(t)
		want[source] = name
		shares[name]++
		for _, at := range []string{listen, second} { // another port, another balancer
			if other, _ := rig.DialUDP(t, at, source).MustAsk(t); other != name {
				t.Errorf("%s is served by %s and by %s", source, name, other)
			}
		}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if shares[name] < clients/16 || shares[name] > clients/2 {
			t.Errorf("%s has %d of %d clients", name, shares[name], clients)
		}
	}
	p.Operate(t, "maint", "web/b")
	moved := 0
	for source, name := range want {
		got, _ := rig.DialUDP(t, listen, source).MustAsk(t)
		if got == "b" {
			t.Error("the one in maintenance is used")
		}
		if got != name && name != "b" {
			moved++
		}
	}
	if moved > clients/10 {
		t.Errorf("%d clients of others moved", moved)
	}
	p.Operate(t, "ready", "web/b")
	for source, name := range want {
		if got, _ := rig.DialUDP(t, listen, source).MustAsk(t); got != name {
			t.Errorf("%s was served by %s and is now by %s", source, name, got)
		}
	}
}

// A pool's source address is where its backends see datagrams come from.
func TestUDPSource(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	a := rig.Member("a", rig.StartTeller(t, "a"))
	p := rig.Start(t, rig.UDPConfig(listen, "idle: 1h", "source: 127.0.0.19, check: {type: none}", a))
	c := rig.DialUDP(t, listen)
	from := func() netip.Addr {
		_, from := c.MustAsk(t)
		return netip.MustParseAddrPort(from).Addr()
	}
	if got := from(); got.String() != "127.0.0.19" {
		t.Errorf("from %v", got)
	}
	// A session moves to the address that is configured.
	p.MustReload(t, rig.UDPConfig(listen, "idle: 1h", "source: 127.0.0.20, check: {type: none}", a))
	if got := from(); got.String() != "127.0.0.20" {
		t.Errorf("after the reload: from %v", got)
	}
}

// headers is a backend that takes PROXY headers and keeps what it got.
type headers struct {
	mu  sync.Mutex
	got []headed
}

// headed is one datagram; the header is nil if it had none.
type headed struct {
	header  *proxyproto.Header
	payload string
}

func (h *headers) answer(d []byte, _ netip.AddrPort) [][]byte {
	r := bufio.NewReaderSize(bytes.NewReader(d), len(d)+16)
	header, err := proxyproto.Read(r)
	if err != nil {
		header = nil
	}
	rest := make([]byte, r.Buffered())
	n, _ := r.Read(rest)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, headed{header, string(rest[:n])})
	return [][]byte{rest[:n]}
}

func (h *headers) take() []headed {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.got = nil }()
	return h.got
}

// PROXY headers: before the first datagram of a session, or before each. The oracle
// reads them.
func TestUDPProxyHeaders(t *testing.T) {
	t.Parallel()
	listen := rig.UDPAddr(t)
	h := &headers{}
	be := rig.ListenUDP(t, nil, "127.0.0.1:0")
	rig.AnswerUDP(t, be, h.answer)
	yaml := func(word string) string {
		return rig.UDPConfig(listen, "idle: 1h", "check: {type: none}, send_proxy: "+word+`, proxy_tlvs: {custom: {"0xE4": zone a}}`, rig.Member("a", be.LocalAddr()))
	}
	p := rig.Start(t, yaml("v2"))
	say := func(c *rig.UDPClient, what string) {
		t.Helper()
		if _, err := c.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
		if got := c.Receive(t); string(got[0]) != what {
			t.Fatalf("%.40q came back for %q", got[0], what)
		}
	}
	for _, c := range []struct {
		word string
		with [3]bool
	}{
		{"v2", [3]bool{true, false, false}},
		{"v2-each", [3]bool{true, true, true}},
	} {
		p.MustReload(t, yaml(c.word))
		client := rig.DialUDP(t, listen, "127.0.0.6")
		texts := []string{"one", "", "three"}
		for _, text := range texts {
			say(client, text)
		}
		got := h.take()
		if len(got) != len(texts) {
			t.Fatalf("%s: %d datagrams", c.word, len(got))
		}
		for i, d := range got {
			if d.payload != texts[i] || (d.header != nil) != c.with[i] {
				t.Errorf("%s, datagram %d: %q, header %+v", c.word, i+1, d.payload, d.header)
			}
			if d.header == nil {
				continue
			}
			tlvs, err := d.header.TLVs()
			if err != nil || len(tlvs) != 1 || tlvs[0].Type != 0xE4 || string(tlvs[0].Value) != "zone a" {
				t.Errorf("%s: %+v, %v", c.word, tlvs, err)
			}
			if d.header.Version != 2 || d.header.TransportProtocol != proxyproto.UDPv4 || d.header.Command != proxyproto.PROXY ||
				d.header.SourceAddr.String() != client.LocalAddr().String() || d.header.DestinationAddr.String() != listen {
				t.Errorf("%s: %+v", c.word, d.header)
			}
		}
		// The header takes its room from the largest datagram.
		large := datagram(65507, 1)
		if _, err := client.Write(large); err != nil {
			t.Fatal(err)
		}
		fits := c.word == "v2" // which has had its header
		if fits {
			if got := client.Receive(t); !bytes.Equal(got[0], large) {
				t.Errorf("%d bytes came back", len(got[0]))
			}
		}
		say(client, "next")
		got = h.take()
		if fits != (got[0].payload == string(large)) || got[len(got)-1].payload != "next" {
			t.Errorf("%s: of the largest datagram came %d bytes in %d", c.word, len(got[0].payload), len(got))
		}
		if n := p.Metrics(t)[`poise_udp_dropped_total{reason="too_large",service="web"}`]; (n == 1) == fits {
			t.Errorf("%s: %v were too large", c.word, n)
		}
	}
	if strings.Contains(p.Stderr(), "level=ERROR") {
		t.Error("something is wrong")
	}
}
