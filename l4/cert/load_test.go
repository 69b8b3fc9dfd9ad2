package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is wrong with files is said so that it can be put right.
func TestLoadErrors(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	file := func(name string, data []byte) string { return write(t, filepath.Join(dir, name), data) }
	good := ca.issue(ecKey(), nil, "a.test")
	crt, key := file("good.crt", good), file("good.key", keyPEM(ecKey()))
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	huge := file("huge", bytes.Repeat([]byte("#\n"), maxFile/2+1))
	for _, tt := range []struct {
		name string
		spec Spec
		want string // with DIR for the directory
	}{
		{"none", Spec{}, "tls.certificates: there has to be one"},
		{"missing", one(filepath.Join(dir, "no.crt"), key), "tls.certificates[0].cert: certificate DIR/no.crt: no such file or directory"},
		{
			"both missing", one(filepath.Join(dir, "no.crt"), filepath.Join(dir, "no.key")),
			"tls.certificates[0].cert: certificate DIR/no.crt: no such file or directory\ntls.certificates[0].key: key DIR/no.key: no such file or directory",
		},
		{"missing key", one(crt, filepath.Join(dir, "no.key")), "tls.certificates[0].key: key DIR/no.key: no such file or directory"},
		{"directory", one(dir, key), "tls.certificates[0].cert: certificate DIR: is a directory, and must be a regular file"},
		{"fifo", one(filepath.Join(dir, "fifo"), key), "tls.certificates[0].cert: certificate DIR/fifo: is a named pipe, and must be a regular file"},
		{"huge", one(huge, key), "tls.certificates[0].cert: certificate DIR/huge: is larger than 1 MiB"},
		{"swapped", one(key, crt), "tls.certificates[0].cert: certificate DIR/good.key holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"},
		{"no key", one(crt, crt), "tls.certificates[0].key: key DIR/good.crt holds no private key in PEM, which begins with -----BEGIN PRIVATE KEY-----"},
		{"another key", one(crt, file("other.key", keyPEM(newECKey()))), "tls.certificates[0].key: key DIR/other.key does not belong to certificate DIR/good.crt"},
		{"another type of key", one(crt, file("rsa.key", keyPEM(rsaKey()))), "tls.certificates[0].key: key DIR/rsa.key does not belong to certificate DIR/good.crt"},
		{
			"wrong order", one(file("order.crt", append(ca.pem(), good...)), key),
			"tls.certificates[0].cert: certificate DIR/order.crt: the certificate of key DIR/good.key has to be the first in the file, it is number 2",
		},
		{
			"encrypted", one(crt, file("enc.key", pemOf("ENCRYPTED PRIVATE KEY", []byte{1}))),
			"tls.certificates[0].key: key DIR/enc.key is encrypted, and there is nobody to ask for the passphrase: store it decrypted, with mode 0600",
		},
		{
			"encrypted the old way", one(crt, file("enc1.key", []byte("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"))),
			"tls.certificates[0].key: key DIR/enc1.key is encrypted, and there is nobody to ask for the passphrase: store it decrypted, with mode 0600",
		},
		{"broken certificate", one(file("broken.crt", pemOf("CERTIFICATE", []byte("x"))), key), "tls.certificates[0].cert: certificate DIR/broken.crt is broken: certificate 1 of the file: x509: malformed certificate"},
		{"half a certificate", one(file("half.crt", good[:len(good)/2]), key), "tls.certificates[0].cert: certificate DIR/half.crt holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"},
		{"broken key", one(crt, file("broken.key", pemOf("PRIVATE KEY", []byte("x")))), "tls.certificates[0].key: key DIR/broken.key is broken: asn1:"},
		{
			"curve", one(file("p224.crt", ca.issue(p224, nil, "a.test")), file("p224.key", keyPEM(p224))),
			"tls.certificates[0].cert: certificate DIR/p224.crt has a key on the curve P-224, which TLS does not use; P-256 is widely known",
		},
		{"authority", with(one(crt, key), func(s *Spec) { s.ClientCA = key }), "tls.client_ca: file DIR/good.key holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"},
		{"no authority", with(one(crt, key), func(s *Spec) { s.ClientCA = "/nowhere/ca" }), "tls.client_ca: file /nowhere/ca: no such file or directory"},
		{"tickets", with(one(crt, key), func(s *Spec) { s.TicketKeys = file("t1", []byte("# old\n\nabcd\n")) }), "tls.ticket_keys: file DIR/t1: line 3: the key has 2 bytes; 32 to 256 are right"},
		{"binary tickets", with(one(crt, key), func(s *Spec) { s.TicketKeys = file("t2", []byte{1, 2, 3}) }), "tls.ticket_keys: file DIR/t2: line 1: a key is written in hexadecimal or base64, and stands alone on its line"},
		{"no tickets", with(one(crt, key), func(s *Spec) { s.TicketKeys = file("t3", []byte("# none\n")) }), "tls.ticket_keys: file DIR/t3 holds no key; make one with: openssl rand -base64 48"},
		{
			"many tickets", with(one(crt, key), func(s *Spec) { s.TicketKeys = file("t4", []byte(strings.Repeat(strings.Repeat("ab", 32)+"\n", 17))) }),
			"tls.ticket_keys: file DIR/t4 holds 17 keys; more than 16 are of no use",
		},
		{
			"all at once",
			Spec{Certificates: []Pair{{Cert: crt, Key: key}, {Cert: "/nowhere/b.crt", Key: key}}, ClientCA: "/nowhere/ca"},
			"tls.certificates[1].cert: certificate /nowhere/b.crt: no such file or directory\ntls.client_ca: file /nowhere/ca: no such file or directory",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Load(tt.spec, nil)
			if err == nil {
				t.Fatal("loaded")
			}
			want := strings.ReplaceAll(tt.want, "DIR", dir)
			if s != nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func one(crt, key string) Spec { return Spec{Certificates: []Pair{{Cert: crt, Key: key}}} }

func with(s Spec, edit func(*Spec)) Spec { edit(&s); return s }

// Labels and company that keys come in.
func TestKeyFormats(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	ec, rs := must(x509.MarshalECPrivateKey(ecKey().(*ecdsa.PrivateKey))), must(x509.MarshalPKCS8PrivateKey(rsaKey()))
	ecCert, rsaCert := ca.issue(ecKey(), nil, "a.test"), ca.issue(rsaKey(), nil, "a.test")
	params := pemOf("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7})
	for name, files := range map[string][2][]byte{
		"SEC 1 after its parameters": {ecCert, append(params, pemOf("EC PRIVATE KEY", ec)...)},
		"PKCS 8 under an old label":  {rsaCert, pemOf("RSA PRIVATE KEY", rs)},
		"text around it":             {append([]byte("subject=CN = a.test\n"), ecCert...), append([]byte("Bag Attributes\n"), keyPEM(ecKey())...)},
		"CRLF":                       {bytes.ReplaceAll(ecCert, []byte("\n"), []byte("\r\n")), bytes.ReplaceAll(keyPEM(ecKey()), []byte("\n"), []byte("\r\n"))},
	} {
		spec := one(write(t, filepath.Join(dir, "c"), files[0]), write(t, filepath.Join(dir, "k"), files[1]))
		if _, err := Load(spec, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Both in one file, as HAProxy has it.
	both := write(t, filepath.Join(dir, "both"), append(keyPEM(ecKey()), ecCert...))
	if _, err := Load(one(both, both), nil); err != nil {
		t.Errorf("one file: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	ca, dir, now := newAuthority("ca"), t.TempDir(), time.Now()
	spec := Spec{TicketKeys: write(t, filepath.Join(dir, "tickets"), []byte(strings.Repeat("ab", 32))), ClientCA: write(t, filepath.Join(dir, "ca"), ca.pem())}
	for name, life := range map[string][2]time.Duration{"expired": {-2, -1}, "future": {1, 1000}, "ending": {-1, 13 * 24}, "fine": {-1, 15 * 24}} {
		crt := ca.issue(ecKey(), func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(life[0]*time.Hour), now.Add(life[1]*time.Hour)
		}, name+".test")
		spec.Certificates = append(spec.Certificates, pairIn(t, dir, name, crt, ecKey()))
	}
	spec.Certificates[0].OCSP = filepath.Join(dir, "nothing.der")
	key := spec.Certificates[0].Key
	for _, path := range []string{key, spec.TicketKeys} {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := load(t, spec, nil)
	for _, want := range []string{
		".cert: certificate " + dir + "/expired.crt has expired on ",
		"certificate " + dir + "/future.crt is not valid before ",
		"certificate " + dir + "/ending.crt expires on ",
		"tls.certificates[0].key: " + key + " can be read by every user of this host (mode 0644); chmod o= " + key,
		"tls.ticket_keys: " + spec.TicketKeys + " can be read by every user of this host (mode 0644)",
		"tls.certificates[0].ocsp: file " + dir + "/nothing.der: no such file or directory",
	} {
		if got := count(s.Warnings(), want); got != 1 {
			t.Errorf("%d warnings with %q in\n%s", got, want, strings.Join(s.Warnings(), "\n"))
		}
	}
	if got := len(s.Warnings()); got != 6 {
		t.Errorf("%d warnings:\n%s", got, strings.Join(s.Warnings(), "\n"))
	}

	// Put right, they go; time passes, others come.
	os.Chmod(key, 0o640)
	if changed, err := s.Refresh(); err != nil || changed != nil {
		t.Errorf("another mode: got %v, %v; nothing is used anew", changed, err)
	}
	if count(s.Warnings(), key) != 0 {
		t.Error("the warning of the mode stays")
	}
	s.now = func() time.Time { return now.Add(2000 * time.Hour) }
	if got := count(s.Warnings(), "has expired on"); got != 4 {
		t.Errorf("later: %d certificates have expired, want 4", got)
	}
	if got := count(s.Warnings(), "every authority in "+spec.ClientCA+" has expired"); got != 1 {
		t.Errorf("later: %d warnings of the authority", got)
	}
}

func count(list []string, part string) (n int) {
	for _, s := range list {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}
