package cert

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
)

// Case O-20: capitals on neither side matter; what nobody routes goes to the default.
func TestServerNames(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	certs := map[string][]byte{
		"default":  ca.issue(ecKey(), nil, "default.example.test"),
		"mixed":    ca.issue(ecKey(), nil, "MiXeD.example.test", "Shop.Example.TEST"),
		"wildcard": ca.issue(ecKey(), nil, "*.Api.example.test"),
		"exact":    ca.issue(ecKey(), nil, "one.api.example.test"),
		"address":  ca.issue(ecKey(), nil, "192.0.2.1"),
		"subject":  ca.issue(ecKey(), func(c *x509.Certificate) { c.Subject.CommonName = "Old.example.test" }),
	}
	var spec Spec
	for _, name := range []string{"default", "mixed", "wildcard", "exact", "address", "subject"} {
		spec.Certificates = append(spec.Certificates, pairIn(t, dir, name, certs[name], ecKey()))
	}
	s := load(t, spec, nil)
	for _, tt := range []struct{ name, want string }{
		{"mixed.example.test", "mixed"},
		{"MIXED.example.TEST", "mixed"},
		{"shop.example.test", "mixed"},
		{"SHOP.EXAMPLE.TEST", "mixed"},
		{"v1.api.example.test", "wildcard"},
		{"v1.API.example.test", "wildcard"},
		{"one.api.example.test", "exact"},
		{"api.example.test", "default"},       // the star is one label, not none
		{"a.b.api.example.test", "default"},   // and not two
		{"*.api.example.test", "wildcard"},    // somebody's idea of a test
		{"unknown.example.test", "default"},   //
		{"xshop.example.test", "default"},     //
		{"localhost", "default"},              //
		{"old.example.test", "subject"},       //
		{"default.example.test", "default"},   //
		{"", "default"},                       //
		{"192.0.2.1", "default"},              // crypto/tls sends no name then: RFC 6066
		{strings.Repeat("a", 200), "default"}, //
	} {
		if got := serialOf(t, s, tt.name); got != numberOf(certs[tt.want]) {
			t.Errorf("name %q: got certificate %d, want that of %q", tt.name, got, tt.want)
		}
	}

	// What crypto/tls refuses to send, or to accept, is looked up the same way.
	choose := func(name string) string {
		c, err := s.live.Load().config.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
		if err != nil {
			t.Fatal(err)
		}
		for name, crt := range certs {
			if numberOf(crt) == c.Leaf.SerialNumber.Int64() {
				return name
			}
		}
		return ""
	}
	for name, want := range map[string]string{"shop.example.test.": "mixed", "192.0.2.1": "default", ".": "default", "..": "default", ".api.example.test": "default"} {
		if got := choose(name); got != want {
			t.Errorf("name %q: got the certificate %q, want %q", name, got, want)
		}
	}
}

// One name with certificates of several types: the client's abilities decide.
func TestKeyTypesSideBySide(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	both := []string{"a.test", "*.a.test"}
	spec := Spec{Certificates: []Pair{
		pairIn(t, dir, "rsa", ca.issue(rsaKey(), nil, both...), rsaKey()),
		pairIn(t, dir, "ecdsa", ca.issue(ecKey(), nil, both...), ecKey()),
		pairIn(t, dir, "ed", ca.issue(edKey(), nil, "ed.test", "exact.a.test"), edKey()),
	}}
	s := load(t, spec, nil)
	rsaOnly := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	for _, tt := range []struct {
		name    string
		suites  []uint16 // of TLS 1.2; nil = TLS 1.3
		keyType x509.PublicKeyAlgorithm
	}{
		{"a.test", nil, x509.ECDSA},
		{"a.test", rsaOnly, x509.RSA},
		{"x.a.test", nil, x509.ECDSA},
		{"x.a.test", rsaOnly, x509.RSA},
		{"", nil, x509.ECDSA},
		{"", rsaOnly, x509.RSA},
		{"other.test", rsaOnly, x509.RSA},
		{"exact.a.test", nil, x509.Ed25519}, // the exact name goes first
		{"exact.a.test", rsaOnly, x509.RSA}, // unless nothing comes of it
		{"ed.test", nil, x509.Ed25519},
	} {
		client := &tls.Config{ServerName: tt.name, RootCAs: ca.pool(), InsecureSkipVerify: tt.name == "" || tt.name == "other.test"}
		if tt.suites != nil {
			client.MaxVersion, client.CipherSuites = tls.VersionTLS12, tt.suites
		}
		m := shake(t, s.Config(), client)
		if got := m.client.PeerCertificates[0].PublicKeyAlgorithm; got != tt.keyType {
			t.Errorf("%q with %v: got %v, want %v", tt.name, tt.suites, got, tt.keyType)
		}
	}

	// There is nothing for it: the client is told so.
	if m := meet(t, s.Config(), &tls.Config{ServerName: "ed.test", MaxVersion: tls.VersionTLS12, CipherSuites: rsaOnly, RootCAs: ca.pool()}); m.clientErr == nil {
		t.Error("a client that knows only RSA got a connection to a name with Ed25519 alone")
	}
}

// The other type must not be used for the default's clients where it lacks a name.
func TestDefaultIsNotReplacedByLess(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	s := load(t, Spec{Certificates: []Pair{
		pairIn(t, dir, "rsa", ca.issue(rsaKey(), nil, "a.test", "b.test"), rsaKey()),
		pairIn(t, dir, "ecdsa", ca.issue(ecKey(), nil, "a.test", "c.test"), ecKey()),
	}}, nil)
	for name, want := range map[string]x509.PublicKeyAlgorithm{"": x509.RSA, "a.test": x509.ECDSA, "b.test": x509.RSA} {
		m := shake(t, s.Config(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if got := m.client.PeerCertificates[0].PublicKeyAlgorithm; got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

// Of two of the same kind for a name, the earlier in the configuration is used.
func TestOrderOfConfiguration(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	first, second := ca.issue(ecKey(), nil, "a.test"), ca.issue(ecKey(), nil, "a.test", "b.test")
	s := load(t, Spec{Certificates: []Pair{pairIn(t, dir, "1", first, ecKey()), pairIn(t, dir, "2", second, ecKey())}}, nil)
	if got := serialOf(t, s, "a.test"); got != numberOf(first) {
		t.Error("the later one is used")
	}
	if got := serialOf(t, s, "b.test"); got != numberOf(second) {
		t.Error("the only one for a name is not used")
	}
}

func TestCertificates(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	crt := ca.issue(rsaKey(), nil, "A.test", "*.b.test", "10.0.0.1", "2001:db8::1")
	spec := Spec{Certificates: []Pair{pairIn(t, dir, "a", crt, rsaKey())}}
	infos := load(t, spec, nil).Certificates()
	if len(infos) != 1 {
		t.Fatalf("got %d certificates, want 1", len(infos))
	}
	got, leaf := infos[0], must(parseChain(crt))[0]
	if got.Path != spec.Certificates[0].Cert || got.KeyType != "RSA" || !got.NotAfter.Equal(leaf.NotAfter) ||
		!slices.Equal(got.Names, []string{"a.test", "*.b.test", "10.0.0.1", "2001:db8::1"}) {
		t.Errorf("got %+v", got)
	}
}
