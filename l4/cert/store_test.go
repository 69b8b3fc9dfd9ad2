package cert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/l4"
)

func TestClientCertificates(t *testing.T) {
	ca, other, dir := newAuthority("ca"), newAuthority("other"), t.TempDir()
	spec := Spec{Certificates: []Pair{pairIn(t, dir, "s", ca.issue(ecKey(), nil, "a.test"), ecKey())}, ClientCA: write(t, filepath.Join(dir, "ca"), ca.pem())}
	required := load(t, spec, nil)
	spec.ClientOptional = true
	optional := load(t, spec, nil)
	spec.ClientCA = ""
	none := load(t, spec, nil)

	of := func(a *authority, edit func(*x509.Certificate)) tls.Certificate {
		crt := must(parseChain(a.issue(ecKey(), edit, "client.test")))[0]
		return tls.Certificate{Certificate: [][]byte{crt.Raw}, PrivateKey: ecKey(), Leaf: crt}
	}
	named := func(c *x509.Certificate) {
		c.Subject = pkix.Name{Organization: []string{"Example, Inc."}, CommonName: "alice"}
	}
	good, foreign := of(ca, named), of(other, named)
	expired := of(ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	server := of(ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })

	alice := &l4.TLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", ServerName: "a.test", Verified: true, Subject: `CN=alice,O=Example\, Inc.`, CommonName: "alice"}
	nobody := &l4.TLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", ServerName: "a.test"}
	for _, tt := range []struct {
		name  string
		store *Store
		cert  *tls.Certificate
		want  *l4.TLS // nil = kept out
	}{
		{"required, good", required, &good, alice},
		{"required, none", required, nil, nil},
		{"required, another authority's", required, &foreign, nil},
		{"required, expired", required, &expired, nil},
		{"required, for servers only", required, &server, nil},
		{"optional, good", optional, &good, alice},
		{"optional, none", optional, nil, nobody},
		{"optional, another authority's", optional, &foreign, nil},
		{"optional, expired", optional, &expired, nil},
		{"not asked for", none, &good, nobody},
	} {
		client := &tls.Config{ServerName: "A.test", RootCAs: ca.pool()}
		if tt.cert != nil {
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.cert, nil }
		}
		m := meet(t, tt.store.Config(), client)
		if tt.want == nil {
			if m.serverErr == nil {
				t.Errorf("%s: was let in", tt.name)
			}
			continue
		}
		if m.serverErr != nil || m.clientErr != nil {
			t.Errorf("%s: %v, %v", tt.name, m.serverErr, m.clientErr)
		} else if diff := cmp.Diff(tt.want, Describe(m.server)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

// A client whose authority is taken away is out at once: its ticket is no way in.
func TestTicketsEndWithTheirAuthority(t *testing.T) {
	ca, clients, dir := newAuthority("ca"), newAuthority("clients"), t.TempDir()
	spec := Spec{
		Certificates: []Pair{pairIn(t, dir, "s", ca.issue(ecKey(), nil, "a.test"), ecKey())},
		ClientCA:     write(t, filepath.Join(dir, "clients"), clients.pem()),
		TicketKeys:   write(t, filepath.Join(dir, "tickets"), []byte(strings.Repeat("5a", 32))),
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		replace(t, spec.ClientCA, clients.pem())
		s := load(t, spec, nil)
		crt := must(parseChain(clients.issue(ecKey(), nil, "client.test")))[0]
		client := &tls.Config{
			ServerName: "a.test", RootCAs: ca.pool(), MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: [][]byte{crt.Raw}, PrivateKey: ecKey()}, nil
			},
		}
		shake(t, s.Config(), client)
		m := shake(t, s.Config(), client)
		if !m.server.DidResume || len(m.server.VerifiedChains) == 0 {
			t.Errorf("%x: resumed %v with %d chains", version, m.server.DidResume, len(m.server.VerifiedChains))
		}
		replace(t, spec.ClientCA, ca.pem())
		if changed, err := s.Refresh(); err != nil || !slices.Equal(changed, []string{spec.ClientCA}) {
			t.Fatalf("%x: got %v, %v", version, changed, err)
		}
		if m := meet(t, s.Config(), client); m.serverErr == nil {
			t.Errorf("%x: a client was let in (resumed: %v)", version, m.server.DidResume)
		}
	}
}

func TestVersionsAndProtocols(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	spec := Spec{Certificates: []Pair{pairIn(t, dir, "s", ca.issue(ecKey(), nil, "a.test"), ecKey())}, ALPN: []string{"h2", "http/1.1"}}
	twelve := load(t, spec, nil)
	spec.MinVersion = tls.VersionTLS13
	thirteen := load(t, spec, nil)
	for _, tt := range []struct {
		store        *Store
		version      uint16
		offer        []string
		want, agreed string // version; "" = refused
	}{
		{twelve, tls.VersionTLS11, nil, "", ""},
		{twelve, tls.VersionTLS12, nil, "TLSv1.2", ""},
		{twelve, tls.VersionTLS13, nil, "TLSv1.3", ""},
		{thirteen, tls.VersionTLS12, nil, "", ""},
		{thirteen, tls.VersionTLS13, nil, "TLSv1.3", ""},
		{twelve, tls.VersionTLS13, []string{"http/1.1", "h2"}, "TLSv1.3", "h2"}, // ours is the order
		{twelve, tls.VersionTLS13, []string{"x", "http/1.1"}, "TLSv1.3", "http/1.1"},
		{twelve, tls.VersionTLS13, []string{"x"}, "", ""}, // RFC 7301 section 3.2
	} {
		m := meet(t, tt.store.Config(), &tls.Config{ServerName: "a.test", RootCAs: ca.pool(), MinVersion: tls.VersionTLS10, MaxVersion: tt.version, NextProtos: tt.offer})
		got := &l4.TLS{}
		if m.serverErr == nil {
			got = Describe(m.server)
		}
		if got.Version != tt.want || got.ALPN != tt.agreed {
			t.Errorf("%x, %v: got %q, %q (%v); want %q, %q", tt.version, tt.offer, got.Version, got.ALPN, m.serverErr, tt.want, tt.agreed)
		}
	}
}

// Recorded today, traffic can be read when there are quantum computers, unless.
func TestPostQuantumKeyExchange(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	s := load(t, Spec{Certificates: []Pair{pairIn(t, dir, "s", ca.issue(ecKey(), nil, "a.test"), ecKey())}}, nil)
	c := loadClient(t, ClientSpec{CA: write(t, filepath.Join(dir, "ca"), ca.pem()), Verify: true, ServerName: "a.test"})
	if got := shake(t, s.Config(), c.Config("x")).server.CurveID; got != tls.X25519MLKEM768 {
		t.Errorf("got %v", got)
	}
}

func TestRefresh(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	key := newECKey()
	crts := [][]byte{ca.issue(ecKey(), nil, "a.test"), ca.issue(ecKey(), nil, "a.test"), ca.issue(key, nil, "a.test")}
	second := ca.issue(ecKey(), nil, "b.test")
	p := pairIn(t, dir, "a", crts[0], ecKey())
	s := load(t, Spec{Certificates: []Pair{p, pairIn(t, dir, "b", second, ecKey())}}, nil)
	config := s.Config()
	step := func(what string, changed []string, problem string, want []byte) {
		t.Helper()
		at := "tls.certificates[0].cert: "
		if strings.HasPrefix(problem, "key") {
			at = "tls.certificates[0].key: "
		}
		got, err := s.Refresh()
		if !slices.Equal(got, changed) {
			t.Errorf("%s: changed %v, want %v", what, got, changed)
		}
		switch {
		case problem == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case problem != "" && (err == nil || err.Error() != at+problem+"; what was loaded before stays in use"):
			t.Errorf("%s: got %v, want %s", what, err, problem)
		}
		if again, err := s.Refresh(); len(again) > 0 || err != nil {
			t.Errorf("%s: said twice: %v, %v", what, again, err)
		}
		for one := range strings.Lines(problem) {
			if count(s.Warnings(), strings.TrimSpace(one)) != 1 {
				t.Errorf("%s: warnings are %q", what, s.Warnings())
			}
		}
		if problem == "" && len(s.Warnings()) > 0 {
			t.Errorf("%s: warnings are %q", what, s.Warnings())
		}
		if serialOf(t, s, "a.test") != numberOf(want) || s.Config() != config {
			t.Errorf("%s: another certificate or configuration is used", what)
		}
		if serialOf(t, s, "b.test") != numberOf(second) {
			t.Errorf("%s: the other pair has suffered", what)
		}
		if infos := s.Certificates(); !infos[0].NotAfter.Equal(must(parseChain(want))[0].NotAfter) {
			t.Errorf("%s: Certificates does not tell of the one in use", what)
		}
	}
	mismatch := "key " + p.Key + " does not belong to certificate " + p.Cert

	step("nothing", nil, "", crts[0])
	replace(t, p.Cert, crts[1])
	step("renewed with the same key", []string{p.Cert}, "", crts[1])
	replace(t, p.Cert, crts[1])
	step("replaced by itself", nil, "", crts[1])
	replace(t, p.Cert, crts[2])
	step("half a pair", nil, mismatch, crts[1])
	replace(t, p.Key, keyPEM(key))
	step("the other half", []string{p.Cert}, "", crts[2])
	write(t, p.Cert, crts[2][:100])
	step("half a file", nil, "certificate "+p.Cert+" holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----", crts[2])
	write(t, p.Cert, nil)
	step("an empty file", nil, "certificate "+p.Cert+" holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----", crts[2])
	write(t, p.Cert, crts[2])
	step("as before", nil, "", crts[2])
	remove(t, p.Key)
	step("no key", nil, "key "+p.Key+": no such file or directory", crts[2])
	remove(t, p.Cert)
	step("no file", nil, "certificate "+p.Cert+": no such file or directory; what was loaded before stays in use\n"+
		"tls.certificates[0].key: key "+p.Key+": no such file or directory", crts[2])
	write(t, p.Cert, crts[0])
	step("one is back", nil, "key "+p.Key+": no such file or directory", crts[2])
	write(t, p.Key, keyPEM(ecKey()))
	step("both are back", []string{p.Cert}, "", crts[0])
	write(t, p.Key, keyPEM(key))
	step("one key for another", nil, mismatch, crts[0])
	write(t, p.Cert, crts[2])
	step("and its certificate", []string{p.Cert}, "", crts[2])
}

// A change in the same tick of the clock, of the same length and in place, leaves
// no trace in what stat tells.
func TestRefreshSeesQuickChanges(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	p := pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey())
	s := load(t, Spec{Certificates: []Pair{p}}, nil)
	for range 50 {
		crt := ca.issue(ecKey(), nil, "a.test")
		write(t, p.Cert, crt)
		if changed, err := s.Refresh(); err != nil || len(changed) != 1 {
			t.Fatalf("got %v, %v", changed, err)
		}
		if got := s.live.Load().infos[0]; got.Path != p.Cert {
			t.Fatal(got)
		}
		c, _ := s.live.Load().config.GetCertificate(&tls.ClientHelloInfo{})
		if !bytes.Equal(c.Leaf.Raw, must(parseChain(crt))[0].Raw) {
			t.Fatal("another certificate is used")
		}
	}
}

// Handshakes go on while files change; nobody is turned away.
func TestHandshakesDuringRefresh(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	p := pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey())
	s := load(t, Spec{Certificates: []Pair{p}}, nil)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				m := meet(t, s.Config(), &tls.Config{ServerName: "a.test", RootCAs: ca.pool()})
				if m.clientErr != nil || m.serverErr != nil {
					t.Errorf("client: %v; server: %v", m.clientErr, m.serverErr)
					return
				}
				s.Certificates()
				s.Warnings()
			}
		})
	}
	for range 30 {
		key := newECKey()
		replace(t, p.Cert, ca.issue(key, nil, "a.test"))
		_, _ = s.Refresh() // the key is still the old one
		replace(t, p.Key, keyPEM(key))
		if _, err := s.Refresh(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	busy.Wait()
}

// The certificate is found without garbage where there is no choice to be made.
func TestLookUpDoesNotAllocate(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	s := load(t, Spec{Certificates: []Pair{pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test", "*.b.test"), ecKey())}}, nil)
	for _, name := range []string{"a.test", "x.b.test", "unknown.test", ""} {
		hello := &tls.ClientHelloInfo{ServerName: name}
		if n := testing.AllocsPerRun(100, func() {
			c, _ := s.Config().GetConfigForClient(hello)
			if crt, err := c.GetCertificate(hello); crt == nil || err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%q: %v allocations", name, n)
		}
	}
}

// What a handshake pays for finding its certificate.
func BenchmarkLookUp(b *testing.B) {
	ca, dir := newAuthority("ca"), b.TempDir()
	spec := Spec{Certificates: []Pair{pairIn(b, dir, "ec", ca.issue(ecKey(), nil, "a.test", "both.test"), ecKey())}}
	spec.Certificates = append(spec.Certificates, pairIn(b, dir, "rsa", ca.issue(rsaKey(), nil, "both.test"), rsaKey()))
	config := load(b, spec, nil).Config()
	for _, name := range []string{"a.test", "both.test"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				hello := &tls.ClientHelloInfo{ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}}
				for pb.Next() {
					c, _ := config.GetConfigForClient(hello)
					if crt, _ := c.GetCertificate(hello); crt == nil {
						b.Fatal("no certificate")
					}
				}
			})
		})
	}
}
