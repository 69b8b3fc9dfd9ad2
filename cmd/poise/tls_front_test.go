package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/poise-lb/poise/internal/loadgen"
)

// program finds one that a test drives.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path = filepath.Join("/usr/sbin", name); !exists(path) {
			unavailable(t, name+" is not installed")
		}
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openssl runs the program with what it reads, and returns what it says.
func openssl(t testing.TB, stdin string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "openssl"), args...)
	cmd.Env = append(os.Environ(), "OPENSSL_CONF=/dev/null", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// sClient is a session of openssl s_client that sends a line and waits for the answer,
// or for the end, before it leaves.
func sClient(t testing.TB, listen string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "openssl"), append([]string{"s_client", "-connect", listen}, args...)...)
	cmd.Env = append(os.Environ(), "OPENSSL_CONF=/dev/null", "LC_ALL=C")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	_, _ = io.WriteString(in, "hello\n")
	eventually(t, "the echo, or the end of s_client", func() bool {
		select {
		case <-ended:
			return true
		default:
			return strings.Contains(out.String(), "db1\nhello\n")
		}
	})
	in.Close()
	<-ended
	return out.String()
}

// OpenSSL gets what it asks for, in the versions and groups it knows, of an ECDSA and an
// RSA certificate for one name.
func TestTLSOpenSSL(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ec, other := ca.issue(t, "db.test"), ca.issue(t, "other.test")
	rsa := ca.issueFor(t, testRSAKey(), func(*x509.Certificate) {}, "db.test")
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, webConfig(listen, fmt.Sprintf("tls: {certificates: [%s, %s, %s]}", ec.yaml(), rsa.yaml(), other.yaml()), "check: {type: none}", member("db1", db.Addr())))
	n := 0.0
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		// In TLS 1.2 the groups are also those of the keys that are understood.
		for group, key := range map[string]string{"X25519:P-256": "X25519", "P-256": "prime256v1"} {
			for algorithm, want := range map[string]string{
				"ECDSA+SHA256":   "Peer signature type: ECDSA",
				"RSA-PSS+SHA256": "Peer signature type: RSA-PSS",
			} {
				out := sClient(t, listen, version, "-groups", group, "-sigalgs", algorithm, "-servername", "DB.test",
					"-CAfile", ca.file, "-verify_return_error", "-verify_hostname", "db.test")
				protocol := map[string]string{"-tls1_2": "TLSv1.2", "-tls1_3": "TLSv1.3"}[version]
				for _, part := range []string{want, key, protocol, "Verification: OK", "db1\nhello"} {
					if !strings.Contains(out, part) {
						t.Errorf("%s %s %s: there is no %q in\n%s", version, group, algorithm, part, out)
					}
				}
				n++
			}
		}
	}
	p.outcomes(t, "ok", n)
	if got := p.Metrics(t)[`poise_tls_handshakes_total{resumed="false",service="web"}`]; got != n {
		t.Errorf("%v handshakes are counted, not %v", got, n)
	}
	if out := sClient(t, listen, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-servername", "db.test"); strings.Contains(out, "db1\nhello") {
		t.Errorf("TLS 1.1 is spoken:\n%s", out)
	}
	p.outcomes(t, "tls_failed", 1)
	if out := sClient(t, listen, "-servername", "other.test", "-CAfile", ca.file, "-verify_return_error", "-verify_hostname", "other.test"); !strings.Contains(out, "db1\nhello") {
		t.Errorf("the other name:\n%s", out)
	}

	p.MustReload(t, webConfig(listen, ec.ends(`min_version: "1.3"`), "check: {type: none}", member("db1", db.Addr())))
	if out := sClient(t, listen, "-tls1_2", "-servername", "db.test"); strings.Contains(out, "db1\nhello") {
		t.Errorf("TLS 1.2 is spoken:\n%s", out)
	}
}

// Case O-20: a certificate whose names have capitals.
func TestTLSNames(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	first, mixed, wild := ca.issue(t, "first.test"), ca.issue(t, "MiXeD.example.test"), ca.issue(t, "*.Api.example.test")
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	start(t, webConfig(listen, fmt.Sprintf("tls: {certificates: [%s, %s, %s]}", first.yaml(), mixed.yaml(), wild.yaml()), "check: {type: none}", member("db1", db.Addr())))
	for name, want := range map[string]leaf{
		"mixed.example.test": mixed, "MIXED.example.TEST": mixed, "v1.API.example.test": wild, "mixed.example.test.": mixed,
		"a.v1.api.example.test": first, "": first, "192.0.2.1": first, "unknown.test": first,
	} {
		got, err := shown(t, listen, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil || got != want.serial() {
			t.Errorf("%q is shown certificate %d, not %d, %v", name, got, want.serial(), err)
		}
	}
}

// Who a client's certificate says it is goes to the log and to the backend.
func TestTLSClientCertificates(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	own, device, stranger := ca.issue(t, "db.test"), ca.issue(t, "device 7"), foreign.issue(t, "device 7")
	address, visits := visitors(t, true)
	listen := addr(t)
	yaml := func(more string) string {
		return "log: {access_format: json}\n" + webConfig(listen, own.ends("alpn: [mqtt, x]", "client_ca: "+ca.file+more),
			"send_proxy: v2, check: {type: none}", member("db1", address))
	}
	p := start(t, yaml(""))
	// try returns the error of a client, with TLS 1.3 that of its first read.
	try := func(with *leaf, protocol string) error {
		t.Helper()
		config := ca.asks("db.test")
		config.NextProtos = []string{protocol}
		if with != nil { // whatever the server asks for
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &with.Certificate, nil }
		}
		c, err := dialTLS(t, listen, config)
		if err != nil {
			return err
		}
		defer c.Close()
		if got := c.ConnectionState().NegotiatedProtocol; got != protocol {
			t.Errorf("%q was agreed on", got)
		}
		if err := c.CloseWrite(); err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		if err == nil && string(b) != "ok" {
			t.Errorf("got %q", b)
		}
		return err
	}
	known := func(v visit, cn string) {
		t.Helper()
		tlvs, err := v.header.TLVs()
		if err != nil {
			t.Fatal(err)
		}
		ssl, ok := tlvparse.FindSSL(tlvs)
		name, _ := ssl.ClientCN()
		version, _ := ssl.SSLVersion()
		cipher, _ := ssl.SSLCipher()
		if !ok || !ssl.ClientSSL() || name != cn || ssl.ClientCertConn() != (cn != "") || cn != "" && !ssl.Verified() ||
			version != "TLSv1.3" || !strings.HasPrefix(cipher, "TLS_") {
			t.Errorf("SSL: %v, name %q, version %q, cipher %q", ok, name, version, cipher)
		}
		for kind, want := range map[proxyproto.PP2Type]string{proxyproto.PP2_TYPE_ALPN: "mqtt", proxyproto.PP2_TYPE_AUTHORITY: "db.test"} {
			got := ""
			for _, tlv := range tlvs {
				if tlv.Type == kind {
					got = string(tlv.Value)
				}
			}
			if got != want {
				t.Errorf("TLV %#x is %q", kind, got)
			}
		}
	}
	if err := try(&device, "mqtt"); err != nil {
		t.Fatal(err)
	}
	known(next(t, visits), "device 7")
	p.logged(t, `"client_subject":"CN=device 7,O=Poise"`, `"client_cn":"device 7"`, `"alpn":"mqtt"`, `"server_name":"db.test"`, `"version":"TLSv1.3"`, `"outcome":"ok"`)
	if err := try(nil, "mqtt"); err == nil {
		t.Error("a client without a certificate is let in")
	}
	if err := try(&stranger, "mqtt"); err == nil {
		t.Error("a client of another authority is let in")
	}
	if err := try(&device, "h2"); err == nil {
		t.Error("a client without a common protocol is let in")
	}
	p.outcomes(t, "tls_failed", 3)

	p.MustReload(t, yaml(", client_optional: true"))
	if err := try(nil, "mqtt"); err != nil {
		t.Errorf("optional: %v", err)
	}
	known(next(t, visits), "")
	if err := try(&device, "mqtt"); err != nil {
		t.Errorf("optional: %v", err)
	}
	known(next(t, visits), "device 7")
	if err := try(&stranger, "mqtt"); err == nil {
		t.Error("a client of another authority is let in")
	}
	p.outcomes(t, "tls_failed", 4)
	if len(visits) != 0 {
		t.Error("some that were turned away reached the backend")
	}
}

// An OCSP response is handed out with the certificate.
func TestTLSStaple(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	own := ca.issue(t, "db.test")
	keyFile, index, response := filepath.Join(ca.dir, "ca.key"), filepath.Join(ca.dir, "index"), filepath.Join(ca.dir, "ocsp")
	der, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "PRIVATE KEY", der)
	// The format of "openssl ca": status, expiry, revocation, serial number, file, name.
	line := fmt.Sprintf("V\t%s\t\t%02X\tunknown\t/CN=db.test\n", own.Leaf.NotAfter.UTC().Format("060102150405Z"), own.serial())
	if err := os.WriteFile(index, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := openssl(t, "", "ocsp", "-index", index, "-rsigner", ca.file, "-rkey", keyFile, "-CA", ca.file, "-issuer", ca.file,
		"-cert", own.cert, "-respout", response, "-ndays", "1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	start(t, webConfig(listen, fmt.Sprintf("tls: {certificates: [{cert: %s, key: %s, ocsp: %s}]}", own.cert, own.key, response), "check: {type: none}", member("db1", db.Addr())))
	want, err := os.ReadFile(response)
	if err != nil {
		t.Fatal(err)
	}
	if c := mustDialTLS(t, listen, ca.asks("db.test")); !bytes.Equal(c.OCSPResponse(), want) {
		t.Errorf("%d bytes are stapled", len(c.OCSPResponse()))
	}
	out := sClient(t, listen, "-status", "-servername", "db.test", "-CAfile", ca.file)
	if !strings.Contains(out, "OCSP Response Status: successful") || !strings.Contains(out, "Cert Status: good") {
		t.Errorf("OpenSSL:\n%s", out)
	}
}

// Sessions are resumed by a second balancer that has the same ticket keys, and by no
// other.
func TestTLSTicketsShared(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	own := ca.issue(t, "db.test")
	db := backend(t, "db1", loadgen.Behaviour{})
	newKey := func() string {
		b := make([]byte, 48)
		_, _ = rand.Read(b)
		return hex.EncodeToString(b)
	}
	shared, another := filepath.Join(ca.dir, "shared"), filepath.Join(ca.dir, "another")
	key := newKey()
	for path, text := range map[string]string{shared: newKey() + "\n" + key + "\n", another: newKey() + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(keys string) (*proc, string) {
		listen := addr(t)
		return start(t, webConfig(listen, own.ends(keys), "check: {type: none}", member("db1", db.Addr()))), listen
	}
	_, one := run("ticket_keys: " + shared)
	second, two := run("ticket_keys: " + shared)
	_, three := run("ticket_keys: " + another)
	_, four := run(`ticket_keys: ""`)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := ca.asks("db.test")
		config.MaxVersion, config.ClientSessionCache = version, tls.NewLRUClientSessionCache(8)
		resumed := func(listen string) bool {
			t.Helper()
			c := mustDialTLS(t, listen, config)
			defer c.Close()
			newClient(c).MustAsk(t) // the ticket comes with it
			return c.ConnectionState().DidResume
		}
		if resumed(one) {
			t.Error("the first session is resumed")
		}
		for _, c := range []struct {
			listen string
			want   bool
		}{{one, true}, {two, true}, {one, true}, {three, false}, {three, true}, {one, false}, {two, true}, {four, false}, {four, true}} {
			if got := resumed(c.listen); got != c.want {
				t.Errorf("version %#x, %+v", version, c)
			}
		}
	}
	eventually(t, "the metric", func() bool {
		return second.Metrics(t)[`poise_tls_handshakes_total{resumed="true",service="web"}`] == 4
	})
}
