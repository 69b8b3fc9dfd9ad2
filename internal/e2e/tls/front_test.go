package tls

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

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// openssl runs the program with what it reads, and returns what it says.
func openssl(t testing.TB, stdin string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, rig.Program(t, "openssl"), args...)
	cmd.Env = append(os.Environ(), "OPENSSL_CONF=/dev/null", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// sClient is a session of openssl s_client that sends a line and waits for the answer,
// or for the end, before it leaves.
func sClient(t testing.TB, listen string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, rig.Program(t, "openssl"), append([]string{"s_client", "-connect", listen}, args...)...)
	cmd.Env = append(os.Environ(), "OPENSSL_CONF=/dev/null", "LC_ALL=C")
	out := &rig.Output{}
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
	rig.Eventually(t, "the echo, or the end of s_client", func() bool {
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
	ca := rig.NewAuthority(t)
	ec, other := ca.Issue(t, "db.test"), ca.Issue(t, "other.test")
	rsa := ca.IssueFor(t, rig.RSAKey(), func(*x509.Certificate) {}, "db.test")
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, fmt.Sprintf("tls: {certificates: [%s, %s, %s]}", ec.YAML(), rsa.YAML(), other.YAML()), "check: {type: none}", rig.Member("db1", db.Addr())))
	n := 0.0
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		// In TLS 1.2 the groups are also those of the keys that are understood.
		for group, key := range map[string]string{"X25519:P-256": "X25519", "P-256": "prime256v1"} {
			for algorithm, want := range map[string]string{
				"ECDSA+SHA256":   "Peer signature type: ECDSA",
				"RSA-PSS+SHA256": "Peer signature type: RSA-PSS",
			} {
				out := sClient(t, listen, version, "-groups", group, "-sigalgs", algorithm, "-servername", "DB.test",
					"-CAfile", ca.File, "-verify_return_error", "-verify_hostname", "db.test")
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
	p.WantOutcomes(t, "ok", n)
	if got := p.Metrics(t)[`poise_tls_handshakes_total{resumed="false",service="web"}`]; got != n {
		t.Errorf("%v handshakes are counted, not %v", got, n)
	}
	if out := sClient(t, listen, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-servername", "db.test"); strings.Contains(out, "db1\nhello") {
		t.Errorf("TLS 1.1 is spoken:\n%s", out)
	}
	p.WantOutcomes(t, "tls_failed", 1)
	if out := sClient(t, listen, "-servername", "other.test", "-CAfile", ca.File, "-verify_return_error", "-verify_hostname", "other.test"); !strings.Contains(out, "db1\nhello") {
		t.Errorf("the other name:\n%s", out)
	}

	p.MustReload(t, rig.WebConfig(listen, ec.ServiceTLS(`min_version: "1.3"`), "check: {type: none}", rig.Member("db1", db.Addr())))
	if out := sClient(t, listen, "-tls1_2", "-servername", "db.test"); strings.Contains(out, "db1\nhello") {
		t.Errorf("TLS 1.2 is spoken:\n%s", out)
	}
}

// Case O-20: a certificate whose names have capitals.
func TestTLSNames(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	first, mixed, wild := ca.Issue(t, "first.test"), ca.Issue(t, "MiXeD.example.test"), ca.Issue(t, "*.Api.example.test")
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	rig.Start(t, rig.WebConfig(listen, fmt.Sprintf("tls: {certificates: [%s, %s, %s]}", first.YAML(), mixed.YAML(), wild.YAML()), "check: {type: none}", rig.Member("db1", db.Addr())))
	for name, want := range map[string]rig.Leaf{
		"mixed.example.test": mixed, "MIXED.example.TEST": mixed, "v1.API.example.test": wild, "mixed.example.test.": mixed,
		"a.v1.api.example.test": first, "": first, "192.0.2.1": first, "unknown.test": first,
	} {
		got, err := rig.ShownSerial(t, listen, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil || got != want.Serial() {
			t.Errorf("%q is shown certificate %d, not %d, %v", name, got, want.Serial(), err)
		}
	}
}

// The name in a client's certificate goes to the log and to the backend.
func TestTLSClientCertificates(t *testing.T) {
	t.Parallel()
	ca, foreign := rig.NewAuthority(t), rig.NewAuthority(t)
	own, device, stranger := ca.Issue(t, "db.test"), ca.Issue(t, "device 7"), foreign.Issue(t, "device 7")
	address, visits := rig.Visitors(t, true)
	listen := rig.Addr(t)
	yaml := func(more string) string {
		return "log: {access_format: json}\n" + rig.WebConfig(listen, own.ServiceTLS("alpn: [mqtt, x]", "client_ca: "+ca.File+more),
			"send_proxy: v2, check: {type: none}", rig.Member("db1", address))
	}
	p := rig.Start(t, yaml(""))
	// try returns the error of a client, with TLS 1.3 that of its first read.
	try := func(with *rig.Leaf, protocol string) error {
		t.Helper()
		config := ca.ClientConfig("db.test")
		config.NextProtos = []string{protocol}
		if with != nil { // whatever the server asks for
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &with.Certificate, nil }
		}
		c, err := rig.DialTLS(t, listen, config)
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
	known := func(v rig.Visit, cn string) {
		t.Helper()
		tlvs, err := v.Header.TLVs()
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
	known(rig.NextVisit(t, visits), "device 7")
	p.WantLogged(t, `"client_subject":"CN=device 7,O=Poise"`, `"client_cn":"device 7"`, `"alpn":"mqtt"`, `"server_name":"db.test"`, `"version":"TLSv1.3"`, `"outcome":"ok"`)
	if err := try(nil, "mqtt"); err == nil {
		t.Error("a client without a certificate is let in")
	}
	if err := try(&stranger, "mqtt"); err == nil {
		t.Error("a client of another authority is let in")
	}
	if err := try(&device, "h2"); err == nil {
		t.Error("a client without a common protocol is let in")
	}
	p.WantOutcomes(t, "tls_failed", 3)

	p.MustReload(t, yaml(", client_optional: true"))
	if err := try(nil, "mqtt"); err != nil {
		t.Errorf("optional: %v", err)
	}
	known(rig.NextVisit(t, visits), "")
	if err := try(&device, "mqtt"); err != nil {
		t.Errorf("optional: %v", err)
	}
	known(rig.NextVisit(t, visits), "device 7")
	if err := try(&stranger, "mqtt"); err == nil {
		t.Error("a client of another authority is let in")
	}
	p.WantOutcomes(t, "tls_failed", 4)
	if len(visits) != 0 {
		t.Error("some that were turned away reached the backend")
	}
}

// An OCSP response is handed out with the certificate.
func TestTLSStaple(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	own := ca.Issue(t, "db.test")
	keyFile, index, response := filepath.Join(ca.Dir, "ca.key"), filepath.Join(ca.Dir, "index"), filepath.Join(ca.Dir, "ocsp")
	der, err := x509.MarshalPKCS8PrivateKey(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	rig.WritePEM(t, keyFile, "PRIVATE KEY", der)
	// The format of "openssl ca": status, expiry, revocation, serial number, file, name.
	line := fmt.Sprintf("V\t%s\t\t%02X\tunknown\t/CN=db.test\n", own.Leaf.NotAfter.UTC().Format("060102150405Z"), own.Serial())
	if err := os.WriteFile(index, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := openssl(t, "", "ocsp", "-index", index, "-rsigner", ca.File, "-rkey", keyFile, "-CA", ca.File, "-issuer", ca.File,
		"-cert", own.Cert, "-respout", response, "-ndays", "1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	rig.Start(t, rig.WebConfig(listen, fmt.Sprintf("tls: {certificates: [{cert: %s, key: %s, ocsp: %s}]}", own.Cert, own.Key, response), "check: {type: none}", rig.Member("db1", db.Addr())))
	want, err := os.ReadFile(response)
	if err != nil {
		t.Fatal(err)
	}
	if c := rig.MustDialTLS(t, listen, ca.ClientConfig("db.test")); !bytes.Equal(c.OCSPResponse(), want) {
		t.Errorf("%d bytes are stapled", len(c.OCSPResponse()))
	}
	out := sClient(t, listen, "-status", "-servername", "db.test", "-CAfile", ca.File)
	if !strings.Contains(out, "OCSP Response Status: successful") || !strings.Contains(out, "Cert Status: good") {
		t.Errorf("OpenSSL:\n%s", out)
	}
}

// Sessions are resumed by a second balancer that has the same ticket keys, and by no
// other.
func TestTLSTicketsShared(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	own := ca.Issue(t, "db.test")
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	newKey := func() string {
		b := make([]byte, 48)
		_, _ = rand.Read(b)
		return hex.EncodeToString(b)
	}
	shared, another := filepath.Join(ca.Dir, "shared"), filepath.Join(ca.Dir, "another")
	key := newKey()
	for path, text := range map[string]string{shared: newKey() + "\n" + key + "\n", another: newKey() + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(keys string) (*rig.Proc, string) {
		listen := rig.Addr(t)
		return rig.Start(t, rig.WebConfig(listen, own.ServiceTLS(keys), "check: {type: none}", rig.Member("db1", db.Addr()))), listen
	}
	_, one := run("ticket_keys: " + shared)
	second, two := run("ticket_keys: " + shared)
	_, three := run("ticket_keys: " + another)
	_, four := run(`ticket_keys: ""`)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := ca.ClientConfig("db.test")
		config.MaxVersion, config.ClientSessionCache = version, tls.NewLRUClientSessionCache(8)
		resumed := func(listen string) bool {
			t.Helper()
			c := rig.MustDialTLS(t, listen, config)
			defer c.Close()
			rig.NewClient(c).MustAsk(t) // the ticket comes with it
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
	rig.Eventually(t, "the metric", func() bool {
		return second.Metrics(t)[`poise_tls_handshakes_total{resumed="true",service="web"}`] == 4
	})
}
