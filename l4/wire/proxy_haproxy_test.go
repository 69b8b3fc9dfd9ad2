package wire

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startHAProxy runs HAProxy, where the specification comes from, in a new directory
// that $DIR stands for in its configuration, and returns the directory.
func startHAProxy(t *testing.T, config string) (dir string) {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("needs HAProxy: ", err)
	}
	dir, err = os.MkdirTemp("", "haproxy") // short, as the path of a socket has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(config, "$DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.Command(program, "-db", "-f", path)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return dir
}

// dialSocket connects to a socket that may not be there yet.
func dialSocket(t *testing.T, path string) net.Conn {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// HAProxy reads what we write, mixed families, fields and checksum included, and we
// read what it writes.
func TestProxyAgainstHAProxy(t *testing.T) {
	dir := startHAProxy(t, `
defaults
  timeout connect 20s
  timeout client 20s
  timeout server 20s
frontend reads
  mode http
  bind unix@$DIR/reads accept-proxy
  http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port] %[fc_pp_authority] %[fc_pp_unique_id]"
listen writes1
  mode tcp
  bind unix@$DIR/writes1 accept-proxy
  server s unix@$DIR/us send-proxy
listen writes2
  mode tcp
  bind unix@$DIR/writes2 accept-proxy
  server s unix@$DIR/us send-proxy-v2 proxy-v2-options crc32c,authority,unique-id,ssl,cert-cn
`)
	for _, tt := range []struct{ src, dst, want string }{
		{"192.0.2.7:40000", "198.51.100.9:443", "192.0.2.7 40000 198.51.100.9 443"},
		{"[2001:db8::1]:40000", "[2001:db8::2]:443", "2001:db8::1 40000 2001:db8::2 443"},
		{"192.0.2.7:40000", "[2001:db8::2]:443", "::ffff:192.0.2.7 40000 2001:db8::2 443"},
		{"[2001:db8::1]:40000", "198.51.100.9:443", "2001:db8::1 40000 ::ffff:198.51.100.9 443"},
	} {
		h := ProxyV2{
			Source: netip.MustParseAddrPort(tt.src), Destination: netip.MustParseAddrPort(tt.dst),
			ALPN: "h2", Authority: "shop.example.test", UniqueID: []byte("unique"), CRC: true,
			SSL:    &ProxySSL{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", CommonName: "bob", ClientCert: true, Verified: true},
			Custom: []TLV{{Type: 0xE0, Value: []byte("custom")}},
		}
		for _, in := range []struct {
			name, fields string
			header       []byte
		}{
			{"v1", " ", AppendProxyV1(nil, h.Source, h.Destination)},
			{"v2", "shop.example.test unique", h.Append(nil)},
		} {
			t.Run(in.name+" "+tt.src+" to "+tt.dst, func(t *testing.T) {
				conn := dialSocket(t, filepath.Join(dir, "reads"))
				fmt.Fprintf(conn, "%sGET / HTTP/1.0\r\n\r\n", in.header)
				answer, err := io.ReadAll(conn)
				_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
				if want := tt.want + " " + in.fields; body != want {
					t.Errorf("HAProxy reads %q, want %q (%v)", answer, want, err)
				}

				us, err := net.Listen("unix", filepath.Join(dir, "us"))
				if err != nil {
					t.Fatal(err)
				}
				defer us.Close()
				us.(*net.UnixListener).SetDeadline(time.Now().Add(20 * time.Second))
				for version, name := range []string{1: "writes1", 2: "writes2"} {
					if version == 0 {
						continue
					}
					client := dialSocket(t, filepath.Join(dir, name))
					fmt.Fprintf(client, "%spayload", in.header)
					client.(*net.UnixConn).CloseWrite()
					server, err := us.Accept()
					if err != nil {
						t.Fatal(err)
					}
					server.SetDeadline(time.Now().Add(20 * time.Second))
					stream, err := io.ReadAll(server)
					server.Close()
					p := ProxyParser{Accept: AcceptAny}
					n, perr := p.Next(stream)
					got := p.Header()
					if err != nil || perr != nil || string(stream[n:]) != "payload" ||
						got.Version != uint8(version) || got.Local || got.Source != h.Source || got.Destination != h.Destination {
						t.Errorf("HAProxy writes %q, which we read as %+v (%v, %v)", stream, got, err, perr)
					}
					if _, ok := got.TLV(TLVCRC32C); version == 2 && !ok {
						t.Errorf("no checksum in %q", stream)
					}
				}
			})
		}
	}
}
