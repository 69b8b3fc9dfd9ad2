package tcp

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// The address that headers claim, and the addresses that the headers come from.
const (
	claimed   = "203.0.113.9"
	claimsV1  = "PROXY TCP4 " + claimed + " 198.51.100.9 40000 443\r\n"
	claimsV2  = rig.ProxySign + "\x21\x11\x00\x0c\xcb\x00\x71\x09\xc6\x33\x64\x09\x9c\x40\x01\xbb"
	trusted   = "127.0.0.2"
	untrusted = "127.0.0.3"
)

// trusting is a configuration of the service web, that believes headers of trusted;
// more is further keys of it.
func trusting(listen, more string, backends ...string) string {
	if more != "" {
		more = ", " + more
	}
	return "log: {access_format: json}\n" + rig.WebConfig(listen,
		"proxy_protocol: {accept: any, trusted: ["+trusted+"]}"+more, "send_proxy: v2, check: {type: none}", backends...)
}

// Case O-18: trusted peers must state the client's address, and are believed; no other
// peer is. The same holds for a dual-stack listener, where IPv4 addresses look like IPv6.
func TestProxyTrust(t *testing.T) {
	t.Parallel()
	for _, dual := range []bool{false, true} {
		t.Run(fmt.Sprintf("dual=%v", dual), func(t *testing.T) {
			t.Parallel()
			address, visits := rig.Visitors(t, true)
			connectTo := rig.Addr(t)
			listen := connectTo
			if dual {
				listen, connectTo = rig.EveryAddr(t)
			}
			p := rig.Start(t, trusting(listen, "", rig.Member("db1", address)))
			check := func(who, text, source, data string) {
				t.Helper()
				c := rig.ConnectFrom(t, who, connectTo)
				if source == "" {
					source = c.LocalAddr().String()
				}
				if r := rig.Say(t, c, 0, text); r.Got != "ok" || r.Err != nil {
					t.Errorf("%q, %v", r.Got, r.Err)
				}
				if v := rig.NextVisit(t, visits); v.Source() != source || v.Data != data || v.Err != nil {
					t.Errorf("the backend got %q of %s, want %q of %s", v.Data, v.Source(), data, source)
				}
				host, port, _ := net.SplitHostPort(source)
				p.WantLogged(t, fmt.Sprintf(`"client":%q,"client_port":%s,`, host, port))
			}
			const hello = "hello"
			check(untrusted, claimsV1+hello, "", claimsV1+hello)
			check(untrusted, claimsV2+hello, "", claimsV2+hello)
			if strings.Contains(p.Stdout(), claimed) {
				t.Error("the claim is in the log")
			}
			check(trusted, claimsV1+hello, claimed+":40000", hello)
			check(trusted, claimsV2+hello, claimed+":40000", hello)
			p.WantLogged(t, `"client":"`+claimed, `"peer":"`+trusted+`"`)
			check(trusted, claimsV1+proxyV1+hello, claimed+":40000", proxyV1+hello)
			check(trusted, claimsV2+rig.ProxyV2+hello, claimed+":40000", rig.ProxyV2+hello)

			c := rig.ConnectFrom(t, trusted, connectTo)
			if _, err := io.WriteString(c, "hello, there is no header before this\n"); err != nil {
				t.Fatal(err)
			}
			rig.WantRefused(t, c)
			p.WantOutcomes(t, "bad_proxy_header", 1)
			p.WantOutcomes(t, "ok", 6)
		})
	}
}

// Case O-18: the address stated, if it is believed, decides about admission.
func TestProxyAdmission(t *testing.T) {
	t.Parallel()
	address, visits := rig.Visitors(t, true)
	listen := rig.Addr(t)
	p := rig.Start(t, trusting(listen, "access: {allow: [127.0.0.0/8, 192.0.2.0/24], deny: [192.0.2.66]}", rig.Member("db1", address)))
	header := func(who string) string { return "PROXY TCP4 " + who + " 198.51.100.9 40000 443\r\n" }
	ok := func(source, text, want string) {
		t.Helper()
		if r := rig.Say(t, rig.ConnectFrom(t, source, listen), 0, text); r.Got != "ok" {
			t.Errorf("%q, %v", r.Got, r.Err)
		}
		if v := rig.NextVisit(t, visits); v.Data != want {
			t.Errorf("the backend got %q", v.Data)
		}
	}
	no := func(source, text string) {
		t.Helper()
		c, err := rig.TryFrom(t, source, listen)
		if (rig.Reading{Err: err}).Reset() {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		rig.WantRefused(t, c)
	}
	ok(trusted, header("192.0.2.7")+"x", "x")
	no(trusted, header("192.0.2.66")+"x")                     // denied
	no(trusted, header(claimed)+"x")                          // not allowed, though the proxy is
	ok(untrusted, header(claimed)+"x", header(claimed)+"x")   // it is the peer that counts
	ok(untrusted, header("192.0.2.66"), header("192.0.2.66")) // likewise
	ok(trusted, rig.ProxySign+"\x20\x00\x00\x00"+"x", "x")    // the proxy itself
	no(trusted, rig.ProxySign+"\x21\x11\x00\x0c"+"\xc0\x00\x02\x42"+rig.ProxyAddr[4:]+"x")
	p.WantOutcomes(t, "refused_acl", 3)
	p.WantLogged(t, `"client":"192.0.2.66"`, `"peer":"`+trusted+`"`, `"outcome":"refused_acl"`)

	// A peer that is not trusted cannot claim an address that is allowed.
	p.MustReload(t, trusting(listen, "access: {allow: ["+trusted+", "+claimed+"]}", rig.Member("db1", address)))
	no(untrusted, claimsV1)
	no(untrusted, claimsV2)
	ok(trusted, claimsV1+"x", "x")
	p.WantOutcomes(t, "refused_acl", 5)
}

// What a source is allowed, it is allowed by itself, and not together with all that
// come through the same proxy; and it has a backend of its own.
func TestProxyLimitsAndHash(t *testing.T) {
	t.Parallel()
	db := rig.ThreeBackends(t)
	members := make([]string, len(db))
	for i, b := range db {
		members[i] = rig.Member(b.Name(), b.Addr())
	}
	listen := rig.Addr(t)
	yaml := func(limits string) string {
		return rig.WebConfig(listen, "proxy_protocol: {accept: any, trusted: ["+trusted+"]}, limits: {"+limits+"}",
			"balance: maglev, check: {type: none}", members...)
	}
	p := rig.Start(t, yaml("per_source: 1"))
	as := func(i, port int) *rig.Client {
		t.Helper()
		conn := rig.ConnectFrom(t, trusted, listen)
		if _, err := fmt.Fprintf(conn, "PROXY TCP4 192.0.2.%d 198.51.100.9 %d 443\r\n", i, port); err != nil {
			t.Fatal(err)
		}
		return rig.NewClient(conn)
	}
	const clients = 30
	served, serving := map[int]string{}, map[string]int{}
	held := map[int]*rig.Client{}
	for i := range clients {
		held[i] = as(i, 40000)
		served[i] = held[i].MustAsk(t)
		serving[served[i]]++
	}
	if len(serving) != len(db) {
		t.Errorf("served by %v", serving)
	}
	second := as(3, 40001)
	if name, err := second.Ask(); err == nil {
		t.Errorf("a second one of a source is served by %s", name)
	}
	p.WantOutcomes(t, "refused_limit", 1)
	held[3].Close()
	rig.Eventually(t, "the first to be gone", func() bool { return p.Status(t).Connections == clients-1 })
	if name := as(3, 40002).MustAsk(t); name != served[3] {
		t.Errorf("served by %s, and by %s before", name, served[3])
	}
	p.MustReload(t, yaml("per_source: 5"))
	for i := range clients {
		if name := as(i, 50000+i).MustAsk(t); name != served[i] {
			t.Errorf("served by %s, and by %s before", name, served[i])
		}
	}
}

// Case O-18: to expect headers and trust no peer is an error.
func TestProxyTrustsNobody(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"{accept: any}", "{accept: v2, trusted: []}"} {
		path := rig.WriteFile(t, rig.WebConfig("127.0.0.1:7000", "proxy_protocol: "+keys, "", rig.Member("db1", "127.0.0.1:1")))
		for _, verb := range []string{"check", "run"} {
			if _, stderr, code := rig.CLI(t, verb, "-c", path); code != 1 || !strings.Contains(stderr, "services.web.proxy_protocol") || !strings.Contains(stderr, "trusted") {
				t.Errorf("%s: exit code %d\n%s", verb, code, stderr)
			}
		}
	}
}

// The header that goes out says what is known, whatever came in.
func TestProxyHeadersOut(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			address, visits := rig.Visitors(t, true)
			listen := rig.Addr(t)
			tlvs := ""
			if version == "v2" {
				tlvs = `proxy_tlvs: {unique_id: true, custom: {"0xE5": "zone a"}}, `
			}
			p := rig.Start(t, rig.JSONLog+rig.WebConfig(listen, "proxy_protocol: {accept: any, trusted: ["+trusted+"]}",
				"send_proxy: "+version+", "+tlvs+"check: {type: none}", rig.Member("db1", address)))
			const v6 = "PROXY TCP6 2001:db8::7 2001:db8::9 40000 443\r\n"
			// The id of the outer proxy is passed on.
			id := rig.ProxySign + "\x21\x11\x00\x12" + rig.ProxyAddr + "\x05\x00\x03abc"
			for _, h := range []struct{ text, from, to string }{
				{claimsV1, claimed + ":40000", "198.51.100.9:443"},
				{v6, "[2001:db8::7]:40000", "[2001:db8::9]:443"},
				{id, "192.0.2.7:40000", "198.51.100.9:443"},
			} {
				c := rig.ConnectFrom(t, trusted, listen)
				rig.Say(t, c, 0, h.text+"x")
				v := rig.NextVisit(t, visits)
				if v.Source() != h.from || v.Header.DestinationAddr.String() != h.to || v.Data != "x" {
					t.Errorf("%q of %v", v.Data, v.Header)
				}
				if version == "v1" {
					continue
				}
				got := map[byte]string{}
				list, err := v.Header.TLVs()
				if err != nil {
					t.Fatal(err)
				}
				for _, tlv := range list {
					got[byte(tlv.Type)] = string(tlv.Value)
				}
				if got[0xe5] != "zone a" || got[5] == "" || h.text == id && got[5] != "abc" || len(got) != 2 {
					t.Errorf("%q", got)
				}
				c.Close() // the log has the name that the backend knows it by
				p.WantLogged(t, `"unique_id":"`+got[5]+`"`)
			}
		})
	}
}

// A header that comes late delays no other client.
func TestProxySlowHeaders(t *testing.T) {
	t.Parallel()
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "proxy_protocol: {accept: any, trusted: [127.0.0.1]}, timeouts: {first_bytes: 1h}", "check: {type: none}", rig.Member("db1", db.Addr())))
	const slow = 200
	for range slow {
		if _, err := io.WriteString(rig.Connect(t, listen), proxyV1[:20]); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, "all to be there", func() bool { return p.Status(t).Connections == slow })
	for range 20 {
		c := rig.NewClient(rig.Connect(t, listen))
		if _, err := io.WriteString(c, proxyV1); err != nil {
			t.Fatal(err)
		}
		c.MustAsk(t)
		c.Close()
	}
	if n, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID())); err != nil || len(n) > 40 {
		t.Errorf("%d threads, %v", len(n), err)
	}
}
