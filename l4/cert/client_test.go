package cert

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func loadClient(t testing.TB, spec ClientSpec) *Client {
	t.Helper()
	c, err := LoadClient(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The name a backend's certificate has to be for.
func TestClientVerifies(t *testing.T) {
	ca, other, dir := newAuthority("ca"), newAuthority("other"), t.TempDir()
	server := func(names ...string) *tls.Config {
		return load(t, Spec{Certificates: []Pair{pairIn(t, dir, "s", ca.issue(ecKey(), nil, names...), ecKey())}}, nil).Config()
	}
	caFile, otherFile := write(t, filepath.Join(dir, "ca"), ca.pem()), write(t, filepath.Join(dir, "other"), other.pem())
	bundle := write(t, filepath.Join(dir, "bundle"), append(other.pem(), ca.pem()...))
	for _, tt := range []struct {
		names   []string // of the backend's certificate
		spec    ClientSpec
		backend string
		want    string // "" = good, else part of the error
	}{
		{[]string{"db.test"}, ClientSpec{CA: caFile, Verify: true}, "db.test:5432", ""},
		{[]string{"db.test"}, ClientSpec{CA: caFile, Verify: true}, "DB.test.", ""},
		{[]string{"db.test"}, ClientSpec{CA: bundle, Verify: true}, "db.test", ""},
		{[]string{"db.test"}, ClientSpec{CA: caFile, Verify: true}, "10.0.0.1:5432", "doesn't contain any IP SANs"},
		{[]string{"db.test"}, ClientSpec{CA: caFile, Verify: true, ServerName: "db.test"}, "10.0.0.1:5432", ""},
		{[]string{"10.0.0.1"}, ClientSpec{CA: caFile, Verify: true}, "10.0.0.1:5432", ""},
		{[]string{"10.0.0.1"}, ClientSpec{CA: caFile, Verify: true}, "10.0.0.2", "certificate is valid for 10.0.0.1, not 10.0.0.2"},
		{[]string{"2001:db8::1"}, ClientSpec{CA: caFile, Verify: true}, "[2001:db8::1]:5432", ""},
		{[]string{"2001:db8::1"}, ClientSpec{CA: caFile, Verify: true}, "2001:db8::1", ""},
		{[]string{"fe80::1"}, ClientSpec{CA: caFile, Verify: true}, "[fe80::1%eth0]:1", ""},
		{[]string{"db.test"}, ClientSpec{CA: otherFile, Verify: true, ServerName: "db.test"}, "x", "unknown authority"},
		{[]string{"db.test"}, ClientSpec{CA: otherFile}, "x", ""},
		{[]string{"db.test"}, ClientSpec{Verify: true}, "db.test", "unknown authority"}, // the system's
		{[]string{"db.test"}, ClientSpec{CA: caFile, Verify: true}, "/run/db.sock", "either ServerName or InsecureSkipVerify must be specified"},
		{[]string{"db.test"}, ClientSpec{CA: caFile, Verify: true, ServerName: "db.test"}, "/run/db.sock", ""},
		{[]string{"db.test"}, ClientSpec{}, "/run/db.sock", ""},
	} {
		m := meet(t, server(tt.names...), loadClient(t, tt.spec).Config(tt.backend))
		switch {
		case tt.want == "" && m.clientErr != nil:
			t.Errorf("%v, %+v, %q: %v", tt.names, tt.spec, tt.backend, m.clientErr)
		case tt.want != "" && (m.clientErr == nil || !strings.Contains(m.clientErr.Error(), tt.want)):
			t.Errorf("%v, %+v, %q: got %v, want %q", tt.names, tt.spec, tt.backend, m.clientErr, tt.want)
		}
	}
}

// Names are sent, addresses are not (RFC 6066 section 3).
func TestClientSendsName(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	s := load(t, Spec{Certificates: []Pair{pairIn(t, dir, "s", ca.issue(ecKey(), nil, "a.test"), ecKey())}, ALPN: []string{"h2", "x"}}, nil)
	c := loadClient(t, ClientSpec{ALPN: []string{"x"}, MinVersion: tls.VersionTLS13})
	for backend, want := range map[string]string{"db.test:1": "db.test", "10.0.0.1:1": "", "[::1]:1": ""} {
		m := shake(t, s.Config(), c.Config(backend))
		if m.server.ServerName != want || m.server.NegotiatedProtocol != "x" || m.server.Version != tls.VersionTLS13 {
			t.Errorf("%s: the backend saw name %q, protocol %q, version %x", backend, m.server.ServerName, m.server.NegotiatedProtocol, m.server.Version)
		}
	}
}

// Our certificate is shown even to a backend whose list of authorities lacks its
// signer; what it makes of that is its affair.
func TestClientShowsCertificate(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	own := pairIn(t, dir, "own", ca.issue(ecKey(), nil, "lb.test"), ecKey())
	server := &tls.Config{Certificates: []tls.Certificate{loadedPair(t, own)}, ClientAuth: tls.RequireAnyClientCert, ClientCAs: newAuthority("another").pool()}
	c := loadClient(t, ClientSpec{Cert: own.Cert, Key: own.Key})
	m := shake(t, server, c.Config("x.test"))
	if len(m.server.PeerCertificates) != 1 || m.server.PeerCertificates[0].DNSNames[0] != "lb.test" {
		t.Error("the backend did not see our certificate")
	}
	if infos := c.Certificates(); len(infos) != 1 || infos[0].Path != own.Cert {
		t.Errorf("got %+v", infos)
	}
}

func loadedPair(t testing.TB, p Pair) tls.Certificate {
	t.Helper()
	v, err := loadPair([]content{read(p.Cert), read(p.Key)})
	if err != nil {
		t.Fatal(err)
	}
	return v.cert
}

// Sessions are resumed, with the backend they are of, until the files change.
func TestClientSessions(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	crt := ca.issue(ecKey(), nil, "a.test", "b.test")
	s := load(t, Spec{Certificates: []Pair{pairIn(t, dir, "s", crt, ecKey())}}, nil)
	caFile := write(t, filepath.Join(dir, "ca"), ca.pem())
	c := loadClient(t, ClientSpec{CA: caFile, Verify: true})
	resumes := func(backend string, want bool) {
		t.Helper()
		if got := shake(t, s.Config(), c.Config(backend)).client.DidResume; got != want {
			t.Errorf("%s: resumed %v, want %v", backend, got, want)
		}
	}
	resumes("a.test:1", false)
	resumes("b.test:1", false)
	resumes("a.test:1", true)
	resumes("b.test:1", true)
	if one, again := c.Config("a.test:1"), c.Config("a.test:1"); one != again {
		t.Error("a backend's configuration is made anew for every connection")
	}

	// Another set of authorities, in which this one still is: no session is older.
	replace(t, caFile, append(ca.pem(), newAuthority("new").pem()...))
	if changed, err := c.Refresh(); err != nil || !slices.Equal(changed, []string{caFile}) {
		t.Fatalf("got %v, %v", changed, err)
	}
	resumes("a.test:1", false)
	resumes("a.test:1", true)

	// Without it, its backends are not believed any more.
	replace(t, caFile, newAuthority("new").pem())
	if _, err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	if m := meet(t, s.Config(), c.Config("a.test:1")); m.clientErr == nil {
		t.Error("a backend is believed whose authority is gone")
	}

	// A broken file changes nothing.
	write(t, caFile, []byte("nonsense"))
	if changed, err := c.Refresh(); err == nil || changed != nil {
		t.Errorf("got %v, %v", changed, err)
	}
	if _, err := c.Refresh(); err != nil {
		t.Errorf("said again: %v", err)
	}
	if count(c.Warnings(), "tls.ca: file "+caFile+" holds no certificate") != 1 {
		t.Errorf("got %q", c.Warnings())
	}
}

func TestClientReplacesCertificate(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	key := newECKey()
	own := pairIn(t, dir, "own", ca.issue(ecKey(), nil, "1.test"), ecKey())
	c := loadClient(t, ClientSpec{Cert: own.Cert, Key: own.Key})
	shown := func() string {
		crt, err := c.Config("x").GetClientCertificate(&tls.CertificateRequestInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return crt.Leaf.DNSNames[0]
	}
	replace(t, own.Cert, ca.issue(key, nil, "2.test"))
	if _, err := c.Refresh(); err == nil || !strings.Contains(err.Error(), "tls.key: key "+own.Key+" does not belong to certificate "+own.Cert) {
		t.Errorf("half a pair: got %v", err)
	}
	if got := shown(); got != "1.test" {
		t.Errorf("half a pair: %q is shown", got)
	}
	replace(t, own.Key, keyPEM(key))
	if changed, err := c.Refresh(); err != nil || !slices.Equal(changed, []string{own.Cert}) {
		t.Errorf("got %v, %v", changed, err)
	}
	if got := shown(); got != "2.test" {
		t.Errorf("%q is shown", got)
	}
}

// Backends that come and go do not fill the memory.
func TestClientConfigsAreBounded(t *testing.T) {
	c := loadClient(t, ClientSpec{})
	for i := range 3 * maxConfigs {
		c.Config(fmt.Sprintf("pod-%d.test", i))
	}
	n := 0
	c.live.Load().configs.Range(func(any, any) bool { n++; return true })
	if n == 0 || n > maxConfigs {
		t.Errorf("%d are remembered, want 1 to %d", n, maxConfigs)
	}
}

func TestClientLoadErrors(t *testing.T) {
	dir := t.TempDir()
	crt := write(t, filepath.Join(dir, "c"), newAuthority("x").issue(ecKey(), func(*x509.Certificate) {}, "a"))
	_, err := LoadClient(ClientSpec{CA: "/nowhere/ca", Cert: crt, Key: "/nowhere/key"})
	want := "tls.ca: file /nowhere/ca: no such file or directory\ntls.key: key /nowhere/key: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
