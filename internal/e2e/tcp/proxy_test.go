package tcp

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Headers of the cases: the client is 192.0.2.7:40000, or as the text says.
const (
	proxyV1 = "PROXY TCP4 192.0.2.7 198.51.100.9 40000 443\r\n"
)

// proxyV2TLV is rig.ProxyV2 with a NOOP of 1500 bytes, longer than a segment.
var proxyV2TLV = rig.ProxySign + "\x21\x11\x05\xeb" + rig.ProxyAddr + "\x04\x05\xdc" + strings.Repeat("\x00", 1500)

// proxyConfig is rig.WebConfig for a service that expects headers from 127.0.0.1 and
// sends headers on.
func proxyConfig(listen, service string, backends ...string) string {
	return "log: {access_format: json}\n" + rig.WebConfig(listen,
		"proxy_protocol: {accept: any, trusted: [127.0.0.1, 127.0.0.2]}"+service,
		"send_proxy: v2, balance: first, check: {type: none}", backends...)
}

// Case O-16: a header in pieces, or glued to data, is one header.
func TestProxyHeaderPieces(t *testing.T) {
	t.Parallel()
	address, visits := rig.Visitors(t, true)
	listen := rig.Addr(t)
	p := rig.Start(t, proxyConfig(listen, "", rig.Member("db1", address)))
	const pause = 50 * time.Millisecond
	payload := strings.Repeat("payload ", 625)
	type try struct {
		pause  time.Duration
		pieces []string
	}
	var tries []try
	for _, h := range []string{proxyV1, rig.ProxyV2, proxyV2TLV} {
		whole := h + payload
		tries = append(tries,
			try{pieces: []string{whole}},
			try{pieces: strings.Split(h, "")}, // then nothing: the end glued to the last byte
			try{pause, []string{h[:9], h[9:20], h[20:], payload}})
		if len(h) < 100 {
			tries = append(tries, try{pause / 10, append(strings.Split(h, ""), payload)})
		}
		for _, cut := range []int{1, 5, 12, 13, 14, 16, 20, 27, len(h) - 1} {
			tries = append(tries, try{pause, []string{whole[:cut], whole[cut:]}})
		}
	}
	tries = append(tries, try{pause, []string{proxyV2TLV[:29], proxyV2TLV[29:700], proxyV2TLV[700:1520], proxyV2TLV[1520:] + payload}})
	var clients sync.WaitGroup
	for _, try := range tries {
		c := rig.Connect(t, listen)
		clients.Go(func() {
			if r := rig.Say(t, c, try.pause, try.pieces...); r.Got != "ok" || r.Err != nil {
				t.Errorf("%d pieces, the first of %d bytes: %q, %v", len(try.pieces), len(try.pieces[0]), r.Got, r.Err)
			}
		})
	}
	clients.Wait()
	bare := 0
	for range tries {
		v := rig.NextVisit(t, visits)
		if v.Data == "" {
			bare++
			v.Data = payload
		}
		if v.Data != payload || v.Err != nil || v.Source() != "192.0.2.7:40000" || v.Header.DestinationAddr.String() != "198.51.100.9:443" {
			t.Errorf("%d bytes from %s, %v", len(v.Data), v.Source(), v.Err)
		}
	}
	if bare != 3 {
		t.Errorf("%d came without their payload", bare-3)
	}
	p.WantOutcomes(t, "ok", float64(len(tries)))
	rig.Eventually(t, "the log", func() bool {
		return strings.Count(p.Stdout(), `"client":"192.0.2.7","client_port":40000,"vip":"198.51.100.9","vip_port":443,"peer":"127.0.0.1"`) == len(tries)
	})
}

// Case O-16: a header that is none ends the connection, and nothing of it reaches a
// backend.
func TestProxyHeaderWrong(t *testing.T) {
	t.Parallel()
	address, visits := rig.Visitors(t, true)
	listen := rig.Addr(t)
	p := rig.Start(t, proxyConfig(listen, ", timeouts: {first_bytes: 2s}", rig.Member("db1", address)))
	bad := map[string]string{
		"version 1 in a header of version 2": rig.ProxySign + "\x11\x11\x00\x0c" + rig.ProxyAddr,
		"command 2":                          rig.ProxySign + "\x22\x11\x00\x0c" + rig.ProxyAddr,
		"too short for its family":           rig.ProxySign + "\x21\x11\x00\x0b" + rig.ProxyAddr,
		"108 bytes without an end":           "PROXY TCP4 " + strings.Repeat("1", 97),
		"no address":                         "PROXY TCP4 999.1.1.1 198.51.100.9 40000 443\r\n",
		"port 70000":                         "PROXY TCP4 192.0.2.7 198.51.100.9 70000 443\r\n",
		"a wrong signature":                  rig.ProxySign[:11] + "\x0b\x21\x11\x00\x0c" + rig.ProxyAddr,
		"data":                               "hello, is this a header? no\r\n",
	}
	var clients sync.WaitGroup
	for name, text := range bad {
		c := rig.Connect(t, listen)
		clients.Go(func() {
			// Not ended by the client, which would end it anyway.
			if _, err := c.Write([]byte(text)); err != nil {
				t.Error(err)
			}
			if r := rig.ReadToEnd(c); r.Got != "" || rig.IsTimeout(r.Err) {
				t.Errorf("%s: %q, %v", name, r.Got, r.Err)
			}
		})
	}
	clients.Wait()
	p.WantOutcomes(t, "bad_proxy_header", float64(len(bad)))

	began := time.Now()
	c := rig.Connect(t, listen)
	// The time is that of the whole header, not of each piece.
	end := time.AfterFunc(rig.Patience, func() { c.Close() })
	defer end.Stop()
	for piece := rig.ProxySign + "\x21\x11\xff\xff" + rig.ProxyAddr; ; piece = "\x00" {
		if _, err := c.Write([]byte(piece)); err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if took := time.Since(began); took < 1500*time.Millisecond || took > rig.Patience-time.Second {
		t.Errorf("it took %v", took)
	}
	p.WantOutcomes(t, "first_bytes_timeout", 1)
	select {
	case v := <-visits:
		t.Errorf("a backend got %+v", v)
	default:
	}
	if b := p.Backend(t, "web", "db1"); b.Total != 0 {
		t.Errorf("%d connections to the backend", b.Total)
	}
}

// Case O-17: headers that state no client, as those of health checks.
func TestProxyHeaderLocal(t *testing.T) {
	t.Parallel()
	address, visits := rig.Visitors(t, true)
	listen := rig.Addr(t)
	p := rig.Start(t, proxyConfig(listen, "", rig.Member("db1", address)))
	zeros := strings.Repeat("\x00", 12)
	for i, h := range []string{
		rig.ProxySign + "\x20\x00\x00\x00",
		rig.ProxySign + "\x20\x11\x00\x0c" + zeros,
		rig.ProxySign + "\x20\x11\x00\x18" + zeros + "\x04\x00\x09" + strings.Repeat("\x00", 9),
		"PROXY UNKNOWN\r\n",
		"PROXY UNKNOWN " + strings.Repeat("x", 107-16) + "\r\n",
		rig.ProxySign + "\x21\x00\x00\x00",                               // unspecified
		rig.ProxySign + "\x21\x31\x00\xd8" + strings.Repeat("\x00", 216), // unix
		rig.ProxySign + "\x21\x32\x00\xd8" + strings.Repeat("\x00", 216), // unix, datagrams
		// A client of UDP is none that a connection can be for.
		rig.ProxySign + "\x21\x12\x00\x0c" + rig.ProxyAddr,
		rig.ProxySign + "\x21\x12\x00\x12" + rig.ProxyAddr + "\x05\x00\x03abc",
		rig.ProxySign + "\x21\x22\x00\x24" + strings.Repeat("\x20", 36),
	} {
		const request = "GET /hc HTTP/1.1\r\nHost: x\r\n\r\n"
		c := rig.Connect(t, listen)
		self := c.LocalAddr().String()
		if r := rig.Say(t, c, 0, h+request); r.Got != "ok" || r.Err != nil {
			t.Errorf("%d: %q, %v", i, r.Got, r.Err)
		}
		if v := rig.NextVisit(t, visits); v.Data != request || v.Source() != self {
			t.Errorf("%d: the backend got %q from %s, not %s", i, v.Data, v.Source(), self)
		}
		_, port, _ := strings.Cut(self, ":")
		p.WantLogged(t, `"client":"127.0.0.1","client_port":`+port+",", `"outcome":"ok"`)
	}
}

// Case O-17: our own checks begin with a header that says LOCAL.
func TestProbesAreLocal(t *testing.T) {
	t.Parallel()
	first := map[string]string{
		"v1": "PROXY UNKNOWN\r\n",
		"v2": rig.ProxySign + "\x20\x00\x00\x00",
	}
	for version, want := range first {
		for check, then := range map[string]string{"tcp": "", "tls": "\x16\x03", "http": "GET "} {
			t.Run(version+" "+check, func(t *testing.T) {
				t.Parallel()
				address, visits := rig.Visitors(t, false)
				rig.Start(t, rig.WebConfig(rig.Addr(t), "", fmt.Sprintf("send_proxy: %s, check: {type: %s, interval: 100ms, fast_interval: 100ms}", version, check),
					rig.Member("db1", address)))
				for range 3 {
					v := rig.NextVisit(t, visits)
					if !strings.HasPrefix(v.Data, want+then) {
						t.Errorf("the probe began with %s", hex.EncodeToString([]byte(v.Data[:min(len(v.Data), 40)])))
					}
					if then == "" && v.Data != want {
						t.Errorf("it went on with %q", v.Data[len(want):])
					}
				}
			})
		}
	}
}
