package cert

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// openssl runs the program; it has to be there where nothing may be skipped.
func openssl(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("openssl")
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("without openssl: ", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "OPENSSL_CONF=/dev/null", "LC_ALL=C") // the machine's own settings are none of ours
	return cmd
}

// greet serves connections until the test ends: a line, and the end. It tells of
// each whether the client was let in.
func greet(t testing.TB, config *tls.Config) (addr string, served <-chan error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	results, done := make(chan error, 100), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			err = c.(*tls.Conn).Handshake()
			if err == nil {
				io.WriteString(c, "hello\n")
				c.(*tls.Conn).CloseWrite()
				io.Copy(io.Discard, c) // else what is still to be read becomes a reset
			}
			c.Close()
			results <- err
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String(), results
}

// OpenSSL, as Debian has it, gets what it asks for.
func TestOpenSSLClient(t *testing.T) {
	openssl(t, "version")
	ca, other, dir := newAuthority("ca"), newAuthority("other"), t.TempDir()
	caFile := write(t, filepath.Join(dir, "ca"), ca.pem())
	ecdsa := pairIn(t, dir, "ecdsa", ca.issue(ecKey(), nil, "a.test", "*.b.test"), ecKey())
	spec := Spec{
		Certificates: []Pair{ecdsa, pairIn(t, dir, "rsa", ca.issue(rsaKey(), nil, "a.test", "*.b.test"), rsaKey()), pairIn(t, dir, "c", ca.issue(ecKey(), nil, "c.test"), ecKey())},
		ALPN:         []string{"h2", "http/1.1"},
	}
	spec.Certificates[0].OCSP = respond(t, ca, ecdsa.Cert, "V", "-sha1")
	type server struct {
		addr   string
		served <-chan error
	}
	serve := func() server {
		addr, served := greet(t, load(t, spec, nil).Config())
		return server{addr, served}
	}
	plain := serve()
	spec.ClientCA = caFile
	mutual := serve()
	spec.ClientOptional, spec.MinVersion = true, tls.VersionTLS13
	optional := serve()
	foreign := pairIn(t, dir, "foreign", other.issue(ecKey(), nil, "x"), ecKey())

	for _, tt := range []struct {
		name   string
		server server
		args   string
		want   []string // regular expressions; none = it must fail
	}{
		{"defaults", plain, "-servername a.test", []string{`Peer signature type: (ECDSA|ecdsa)`, `New, TLSv1\.3`, `Verification: OK`}},
		{"capitals", plain, "-servername A.TEST -verify_hostname a.test", []string{`Verification: OK`}},
		{"wildcard", plain, "-servername x.B.test -verify_hostname x.b.test", []string{`Verification: OK`}},
		{"another name", plain, "-servername c.test -verify_hostname c.test", []string{`Verification: OK`}},
		{"an unknown name", plain, "-servername d.test -verify_hostname a.test", []string{`Verification: OK`}},
		{"no name", plain, "-noservername -verify_hostname a.test", []string{`Verification: OK`}},
		{"only RSA, 1.3", plain, "-servername a.test -sigalgs rsa_pss_rsae_sha256:RSA+SHA256", []string{`Peer signature type: (RSA-PSS|rsa_pss_rsae_sha256)`}},
		{"only RSA, 1.2", plain, "-servername a.test -tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256", []string{`New, TLSv1\.2, Cipher is ECDHE-RSA-AES128-GCM-SHA256`, `Verification: OK`}},
		{"only ECDSA, 1.2", plain, "-servername a.test -tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305", []string{`New, TLSv1\.2, Cipher is ECDHE-ECDSA-CHACHA20-POLY1305`}},
		{"X25519", plain, "-servername a.test -groups X25519", []string{`(Server|Peer) Temp Key: X25519`}},
		{"P-256", plain, "-servername a.test -groups P-256", []string{`(Server|Peer) Temp Key: (ECDH, prime256v1|.*P-256)`}},
		{"P-384", plain, "-servername a.test -groups P-384", []string{`(Server|Peer) Temp Key: (ECDH, secp384r1|.*P-384)`}},
		{"ALPN", plain, "-servername a.test -alpn http/1.1,h2", []string{`ALPN protocol: h2`}},
		{"no ALPN in common", plain, "-servername a.test -alpn smtp", nil},
		{"OCSP", plain, "-servername a.test -status", []string{`OCSP Response Status: successful`, `Cert Status: good`}},
		{"no OCSP for this one", plain, "-servername c.test -status", []string{`OCSP response: no response sent`}},
		{"TLS 1.1", plain, "-servername a.test -tls1_1 -cipher ALL:@SECLEVEL=0", nil},
		{"without a certificate", mutual, "-servername a.test", nil},
		{"with a certificate", mutual, "-servername a.test -cert " + ecdsa.Cert + " -key " + ecdsa.Key, []string{`Verification: OK`, `Acceptable client certificate CA names\n.*CN ?= ?ca\n`}},
		{"with another authority's", mutual, "-servername a.test -cert " + foreign.Cert + " -key " + foreign.Key, nil},
		{"optional, without", optional, "-servername a.test", []string{`New, TLSv1\.3`}},
		{"optional, with", optional, "-servername a.test -cert " + ecdsa.Cert + " -key " + ecdsa.Key, []string{`New, TLSv1\.3`}},
		{"optional, with another authority's", optional, "-servername a.test -cert " + foreign.Cert + " -key " + foreign.Key, nil},
		{"not below 1.3", optional, "-servername a.test -tls1_2", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := sClient(t, tt.server.addr, caFile, tt.args)
			served := <-tt.server.served
			if tt.want == nil {
				if served == nil {
					t.Errorf("was served:\n%s", out)
				}
				return
			}
			if err != nil || served != nil {
				t.Errorf("client: %v, server: %v\n%s", err, served, out)
			}
			for _, re := range tt.want {
				if !regexp.MustCompile(re).MatchString(out) {
					t.Errorf("no %s in\n%s", re, out)
				}
			}
		})
	}
}

func sClient(t testing.TB, addr, ca, args string) (string, error) {
	t.Helper()
	cmd := openssl(t, append([]string{"s_client", "-connect", addr, "-CAfile", ca, "-verify_return_error", "-ign_eof"}, strings.Fields(args)...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Sessions of OpenSSL are resumed, also at the other one of a pair.
func TestOpenSSLResumes(t *testing.T) {
	openssl(t, "version")
	ca, dir := newAuthority("ca"), t.TempDir()
	caFile := write(t, filepath.Join(dir, "ca"), ca.pem())
	spec := Spec{
		Certificates: []Pair{pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey())},
		TicketKeys:   write(t, filepath.Join(dir, "tickets"), []byte(strings.Repeat("0f", 32))),
	}
	one, _ := greet(t, load(t, spec, nil).Config())
	two, _ := greet(t, load(t, spec, nil).Config())
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		session := filepath.Join(dir, "session"+version)
		if out, err := sClient(t, one, caFile, version+" -servername a.test -sess_out "+session); err != nil || !strings.Contains(out, "New, TLSv1") {
			t.Fatalf("%s: %v\n%s", version, err, out)
		}
		if out, err := sClient(t, two, caFile, version+" -servername a.test -sess_in "+session); err != nil || !strings.Contains(out, "Reused, TLSv1") {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
	}
}

// To a server of OpenSSL that wants to see a certificate.
func TestOpenSSLServer(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	caFile := write(t, filepath.Join(dir, "ca"), ca.pem())
	srv := pairIn(t, dir, "srv", ca.issue(rsaKey(), nil, "127.0.0.1", "db.test"), rsaKey())
	own := pairIn(t, dir, "own", ca.issue(ecKey(), nil, "lb.test"), ecKey())
	cmd := openssl(t, "s_server", "-accept", "127.0.0.1:0", "-cert", srv.Cert, "-key", srv.Key, "-CAfile", caFile, "-Verify", "1", "-verify_return_error", "-alpn", "x", "-rev")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It buffers what it says of connections: only where it listens is said at once.
	lines := bufio.NewScanner(out)
	var addr string
	for addr == "" && lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "ACCEPT "); ok {
			addr = at
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-drained
		cmd.Wait()
	})
	if addr == "" {
		t.Fatal("openssl s_server does not say where it listens")
	}
	reverse := func(config *tls.Config) (tls.ConnectionState, error) {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(patience))
		c := tls.Client(raw, config)
		defer c.Close()
		fmt.Fprintln(c, "abc")
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && line != "cba\n" {
			err = fmt.Errorf("got %q", line)
		}
		return c.ConnectionState(), err
	}
	spec := ClientSpec{CA: caFile, Verify: true, Cert: own.Cert, Key: own.Key, ALPN: []string{"x"}}
	client := loadClient(t, spec)
	for i, resumed := range []bool{false, true} {
		cs, err := reverse(client.Config(addr))
		if err != nil || cs.DidResume != resumed || cs.NegotiatedProtocol != "x" {
			t.Errorf("connection %d: resumed %v, protocol %q, %v", i, cs.DidResume, cs.NegotiatedProtocol, err)
		}
	}
	spec.ServerName = "DB.test"
	if _, err := reverse(loadClient(t, spec).Config(addr)); err != nil {
		t.Errorf("by name: %v", err)
	}
	spec.ServerName = "other.test"
	if _, err := reverse(loadClient(t, spec).Config(addr)); err == nil {
		t.Error("by a name that is not its own: no error")
	}
	spec.ServerName, spec.Cert, spec.Key = "", "", ""
	if _, err := reverse(loadClient(t, spec).Config(addr)); err == nil {
		t.Error("without a certificate: no error")
	}
}
