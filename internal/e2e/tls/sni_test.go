package tls

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// sniConfig is a configuration of one service, web, that routes by server names to
// pools of one backend each; more is further keys of the service.
func sniConfig(listen, sni, more string, pools map[string]string) string {
	var b strings.Builder
	if more != "" {
		more = ", " + more
	}
	fmt.Fprintf(&b, "log: {access_format: json}\ndefaults: {pools: {check: {type: none}}}\nservices:\n  web: {listen: [%q], sni: {%s}%s}\npools:\n", listen, sni, more)
	for name, address := range pools {
		fmt.Fprintf(&b, "  %s: {backends: [%s]}\n", name, rig.Member("db1", address))
	}
	return b.String()
}

// Case O-19: a ClientHello in whatever pieces and of whatever size is understood, and
// goes on as it came.
func TestSNIShapes(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	a, digests := tenant(t, ca, "a.test")
	b, others := tenant(t, ca, "b.test")
	listen := rig.Addr(t)
	p := rig.Start(t, sniConfig(listen, "a.test: a, default: b", "", map[string]string{"a": a, "b": b}))
	whole := func(b []byte) [][]byte { return [][]byte{b} }
	bytewise := func(b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 1)) }
	var long, huge []string // a hello that is long by itself
	for i := range 58 {
		long = append(long, fmt.Sprintf("%0254d", i))
	}
	for i := range 240 {
		huge = append(huge, fmt.Sprintf("%0254d", i))
	}
	for name, c := range map[string]struct {
		shape func([]byte) [][]byte
		alpn  []string
		least int
	}{
		"as it is":               {whole, nil, 1200}, // a key share of X25519MLKEM768 is in it
		"a byte a segment":       {bytewise, nil, 1200},
		"two records":            {func(b []byte) [][]byte { return [][]byte{slices.Concat(records(b[5:45], 40), records(b[45:], 1<<14))} }, nil, 0},
		"two records, two parts": {func(b []byte) [][]byte { return [][]byte{records(b[5:45], 40), records(b[45:], 1<<14)} }, nil, 0},
		"records of a byte":      {func(b []byte) [][]byte { return whole(records(b[5:], 1)) }, nil, 0},
		"bytes of such records":  {func(b []byte) [][]byte { return bytewise(records(b[5:], 1)) }, nil, 0},
		"15 kB":                  {whole, long, 15_000},
		"15 kB a byte a segment": {bytewise, long, 15_000},
		"61 kB in records":       {whole, huge, 16_000}, // the first of four is looked at
	} {
		t.Run(name, func(t *testing.T) {
			config := ca.ClientConfig("a.test")
			config.NextProtos = c.alpn
			least := 0
			conn := &reshaper{Conn: rig.Connect(t, listen), sum: sha256.New(), shape: func(first []byte) [][]byte {
				least = len(first)
				return c.shape(first)
			}}
			s := tls.Client(conn, config)
			if _, err := io.WriteString(s, "hello\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s, make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			s.Close()
			if least < c.least {
				t.Errorf("the hello has %d bytes", least)
			}
			select {
			case got := <-digests:
				if got != conn.digest() {
					t.Error("the backend got something else")
				}
			case <-time.After(rig.Patience):
				t.Fatal("nothing arrived")
			}
			if c.least > 1000 && s.ConnectionState().CurveID != tls.X25519MLKEM768 {
				t.Errorf("the key exchange is %v", s.ConnectionState().CurveID)
			}
		})
	}
	if len(others) > 0 {
		t.Error("some went to the default")
	}
	p.WantOutcomes(t, "ok", 9)
	p.WantLogged(t, `"pool":"a"`, `"tls":null`)
}

// Case O-19 (d): padding, as clients that want to be of a certain size use it.
func TestSNIPadding(t *testing.T) {
	t.Parallel()
	listen := rig.Addr(t)
	rig.Start(t, sniConfig(listen, "a.test: a, default: z", "", map[string]string{"a": rig.StartNamed(t, "a"), "z": rig.StartNamed(t, "z")}))
	hello := rig.HelloFor(t, "a.test")
	for _, n := range []int{2047, 2048, 2049, 5476, 15_000, 16 << 10, 65_000} {
		if who := rig.Reaches(t, listen, stuffed(hello, n)); who != "a" {
			t.Errorf("%d bytes reach %q", n, who)
		}
	}
	if who := rig.Reaches(t, listen, stuffed(hello, 70_000)); who != "" {
		t.Errorf("70000 bytes reach %q", who)
	}
}

// Case O-19 (f), (g): what is no ClientHello, or never one, reaches no backend.
func TestSNIBroken(t *testing.T) {
	t.Parallel()
	listen := rig.Addr(t)
	p := rig.Start(t, sniConfig(listen, "a.test: a, default: z, not_tls: z", "timeouts: {first_bytes: 1h}",
		map[string]string{"a": rig.StartNamed(t, "a"), "z": rig.StartNamed(t, "z")}))
	hello := rig.HelloFor(t, "a.test")
	big := slices.Clone(hello)
	big[6], big[7], big[8] = 0xff, 0xff, 0xff
	wrong := slices.Clone(hello)
	wrong[5] = 2 // a ServerHello
	short := slices.Clone(hello)
	short[8]-- // of the message: the extensions do not fit
	for name, b := range map[string][]byte{"of 16 MB": big, "of the wrong type": wrong, "with a wrong length": short} {
		c := rig.Connect(t, listen)
		// The client does not end it: it is closed at once.
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if r := rig.ReadToEnd(c); r.Got != "" || rig.IsTimeout(r.Err) {
			t.Errorf("%s: %q, %v", name, r.Got, r.Err)
		}
	}
	p.WantOutcomes(t, "bad_tls_hello", 3)

	p.MustReload(t, sniConfig(listen, "a.test: a, default: z, no_hello: z", "timeouts: {first_bytes: 1s}",
		map[string]string{"a": rig.StartNamed(t, "a"), "z": rig.StartNamed(t, "z")}))
	for _, n := range []int{1, len(hello) / 2, len(hello) - 1} {
		began := time.Now()
		c := rig.Connect(t, listen)
		if _, err := c.Write(hello[:n]); err != nil {
			t.Fatal(err)
		}
		rig.WantRefused(t, c)
		if took := time.Since(began); took < 800*time.Millisecond || took > rig.Patience/2 {
			t.Errorf("half a hello was closed after %v", took)
		}
	}
	p.WantOutcomes(t, "first_bytes_timeout", 3)
	for _, pool := range []string{"a", "z"} {
		if b := p.Backend(t, pool, "db1"); b.Total != 0 {
			t.Errorf("%s got %d connections", pool, b.Total)
		}
	}
}

// Case O-20: names are the same in whatever case they are written.
func TestSNINames(t *testing.T) {
	t.Parallel()
	listen := rig.Addr(t)
	pools := map[string]string{"shop": rig.StartNamed(t, "shop"), "api": rig.StartNamed(t, "api"), "h2": rig.StartNamed(t, "h2"), "other": rig.StartNamed(t, "other")}
	const routes = `Shop.Example.TEST: [{pool: h2, alpn: [h2]}, shop], "*.Api.example.test": api`
	p := rig.Start(t, sniConfig(listen, routes, "", pools))
	names := map[string]string{
		"shop.example.test": "shop", "SHOP.EXAMPLE.TEST": "shop", "shop.example.test.": "shop",
		"v1.API.example.test": "api", "V1.api.EXAMPLE.test": "api",
		"a.v1.api.example.test": "", "api.example.test": "", "192.0.2.1": "", "": "", "unknown.test": "", "xshop.example.test": "",
	}
	closed := 0.0
	for name, want := range names {
		if who := rig.Reaches(t, listen, rig.HelloFor(t, name)); who != want {
			t.Errorf("%q reaches %q, not %q", name, who, want)
		}
		if want == "" {
			closed++
		}
	}
	p.WantOutcomes(t, "bad_tls_hello", closed)
	if n := p.Metrics(t)[`poise_service_refused_total{reason="bad_tls_hello",service="web"}`]; n != closed {
		t.Errorf("%v are counted as refused", n)
	}
	if who := rig.Reaches(t, listen, rig.HelloFor(t, "SHOP.example.test", "http/1.1", "h2")); who != "h2" {
		t.Errorf("h2 reaches %q", who)
	}
	if who := rig.Reaches(t, listen, rig.HelloFor(t, "SHOP.example.test", "http/1.1")); who != "shop" {
		t.Errorf("http/1.1 reaches %q", who)
	}

	p.MustReload(t, sniConfig(listen, routes+", default: other", "", pools))
	for name, want := range names {
		if want == "" {
			want = "other"
		}
		if who := rig.Reaches(t, listen, rig.HelloFor(t, name)); who != want {
			t.Errorf("with a default %q reaches %q, not %q", name, who, want)
		}
	}

	res := p.Reload(t, sniConfig(listen, "Shop.example.test: shop, shop.EXAMPLE.test: other", "", pools))
	if res.OK || !strings.Contains(res.Error, "services.web.sni") {
		t.Errorf("two routes for one name: %+v", res)
	}
	if who := rig.Reaches(t, listen, rig.HelloFor(t, "unknown.test")); who != "other" {
		t.Errorf("after a refused reload a client reaches %q", who)
	}
}

// Case O-21: where nothing of the client matters, nothing is waited for.
func TestServerFirst(t *testing.T) {
	t.Parallel()
	greeter := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		time.Sleep(100 * time.Millisecond)
		_, _ = io.WriteString(c, "220 ready\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	listen := rig.Addr(t)
	rig.Start(t, rig.WebConfig(listen, "timeouts: {idle: 1h}", "check: {type: none}", rig.Member("mx", greeter)))
	c := rig.NewClient(rig.Connect(t, listen))
	if line, err := c.Reader.ReadString('\n'); line != "220 ready\r\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

// Case O-21: a connection whose name is not known in time is closed, unless a pool is
// configured for such connections.
func TestSNITimeout(t *testing.T) {
	t.Parallel()
	greeter := rig.Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		_, _ = io.WriteString(c, "220 ready\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	listen := rig.Addr(t)
	pools := map[string]string{"a": rig.StartNamed(t, "a"), "z": rig.StartNamed(t, "z"), "mx": greeter, "plain": rig.StartNamed(t, "plain")}
	const limit = time.Second
	p := rig.Start(t, sniConfig(listen, "a.test: a, default: z", "timeouts: {first_bytes: 1s}", pools))
	hello := rig.HelloFor(t, "a.test")
	slow := func() {
		t.Helper()
		c := rig.Connect(t, listen)
		if _, err := c.Write(hello[:100]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * limit / 2)
		_, _ = c.Write(hello[100:])
		rig.WantRefused(t, c)
	}
	slow()
	began := time.Now()
	rig.WantRefused(t, rig.Connect(t, listen))
	if took := time.Since(began); took < limit*4/5 || took > rig.Patience/2 {
		t.Errorf("a silent client was closed after %v", took)
	}
	p.WantOutcomes(t, "first_bytes_timeout", 2)
	if who := rig.Reaches(t, listen, []byte("EHLO x\r\n")); who != "" {
		t.Errorf("plain text reaches %q", who)
	}
	p.WantOutcomes(t, "bad_tls_hello", 1)

	p.MustReload(t, sniConfig(listen, "a.test: a, default: z, not_tls: plain, no_hello: mx", "timeouts: {first_bytes: 1s}", pools))
	if who := rig.Reaches(t, listen, []byte("EHLO x\r\n")); who != "plain" {
		t.Errorf("plain text reaches %q", who)
	}
	slow()
	c := rig.NewClient(rig.Connect(t, listen))
	if line, err := c.Reader.ReadString('\n'); line != "220 ready\r\n" || err != nil {
		t.Errorf("a silent client gets %q, %v", line, err)
	}
	p.WantOutcomes(t, "first_bytes_timeout", 3)
	for _, pool := range []string{"a", "z"} {
		if b := p.Backend(t, pool, "db1"); b.Total != 0 {
			t.Errorf("%s got %d connections", pool, b.Total)
		}
	}
}
