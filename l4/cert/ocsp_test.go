package cert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// respond has OpenSSL make a response about a certificate that is good for a day:
// V for a good one, R for a revoked one, nothing for an unknown one.
func respond(t testing.TB, ca *authority, crt, state, hash string) string {
	t.Helper()
	dir := t.TempDir()
	issuer, key := write(t, filepath.Join(dir, "ca"), ca.pem()), write(t, filepath.Join(dir, "key"), keyPEM(ca.key))
	leaf := must(parseChain(must(os.ReadFile(crt))))[0]
	number := fmt.Sprintf("%X", leaf.SerialNumber)
	if len(number)%2 == 1 {
		number = "0" + number
	}
	index := map[string]string{
		"V": "V\t" + leaf.NotAfter.UTC().Format("060102150405Z") + "\t\t" + number + "\tunknown\t/CN=x\n",
		"R": "R\t" + leaf.NotAfter.UTC().Format("060102150405Z") + "\t" + time.Now().Add(-time.Hour).UTC().Format("060102150405Z") + "\t" + number + "\tunknown\t/CN=x\n",
	}[state]
	list, req, resp := write(t, filepath.Join(dir, "index"), []byte(index)), filepath.Join(dir, "req"), filepath.Join(dir, "resp.der")
	for _, args := range [][]string{
		{"ocsp", hash, "-issuer", issuer, "-serial", "0x" + number, "-reqout", req},
		{"ocsp", "-index", list, "-CA", issuer, "-rsigner", issuer, "-rkey", key, "-reqin", req, "-respout", resp, "-ndays", "1"},
	} {
		if out, err := openssl(t, args...).CombinedOutput(); err != nil {
			t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return resp
}

func TestStaple(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	p := pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey())
	p.OCSP = filepath.Join(dir, "ocsp.der")
	s := load(t, Spec{Certificates: []Pair{p}}, nil) // it may come later
	now := time.Now()
	step := func(what string, response []byte, after time.Duration, want string, warnings ...string) {
		t.Helper()
		if response != nil {
			replace(t, p.OCSP, response)
		}
		s.now = func() time.Time { return now.Add(after) }
		_, _ = s.Refresh() // what it tells is in the warnings, too
		m := shake(t, s.Config(), &tls.Config{ServerName: "a.test", RootCAs: ca.pool()})
		if got := string(m.client.OCSPResponse); got != want {
			t.Errorf("%s: %d bytes are stapled, want %d", what, len(got), len(want))
		}
		got := s.Warnings()
		for i, w := range warnings {
			warnings[i] = "tls.certificates[0].ocsp: " + strings.ReplaceAll(w, "FILE", p.OCSP)
		}
		if !slices.EqualFunc(got, warnings, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", what, got, warnings)
		}
	}
	file := func(path string) []byte { return must(os.ReadFile(path)) }
	good, good256 := file(respond(t, ca, p.Cert, "V", "-sha1")), file(respond(t, ca, p.Cert, "V", "-sha256"))

	step("no file", nil, 0, "", "file FILE: no such file or directory")
	step("good", good, 0, string(good))
	step("good, by SHA-256", good256, 0, string(good256))
	step("broken", good[:100], 0, string(good256), "file FILE is not an OCSP response in DER")
	step("the responder failed", must(asn1.Marshal(struct{ S asn1.Enumerated }{6})), 0, string(good256), "file FILE is an OCSP response that says only that the responder failed (status 6)")
	step("broken, and a day later", nil, 25*time.Hour, "", "file FILE is an OCSP response that says only", "OCSP response FILE was good until ")
}

func TestStapleIsAboutTheCertificate(t *testing.T) {
	ca, other, dir := newAuthority("ca"), newAuthority("other"), t.TempDir()
	crt := pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey()).Cert
	second := write(t, filepath.Join(dir, "second"), ca.issue(ecKey(), nil, "a.test"))
	leaf, now := must(parseChain(must(os.ReadFile(crt))))[0], time.Now()
	for _, tt := range []struct {
		what, file string
		after      time.Duration
		want       string // "" = good
	}{
		{"good", respond(t, ca, crt, "V", "-sha1"), 0, ""},
		{"good, by SHA-256", respond(t, ca, crt, "V", "-sha256"), 0, ""},
		{"revoked", respond(t, ca, crt, "R", "-sha1"), 0, "OCSP response R does not say that certificate C is good: it is revoked or unknown"},
		{"unknown", respond(t, ca, crt, "", "-sha1"), 0, "OCSP response R does not say that certificate C is good: it is revoked or unknown"},
		{"another certificate's", respond(t, ca, second, "V", "-sha1"), 0, "OCSP response R is not about certificate C"},
		{"another authority's", respond(t, other, crt, "V", "-sha1"), 0, "OCSP response R is not about certificate C"},
		{"old", respond(t, ca, crt, "V", "-sha1"), 25 * time.Hour, "OCSP response R was good until "},
		{"early", respond(t, ca, crt, "V", "-sha1"), -time.Hour, "OCSP response R is not good before "},
		{"a little early", respond(t, ca, crt, "V", "-sha1"), -time.Minute, ""},
	} {
		s, err := loadStaple([]content{read(tt.file)})
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		until, err := s.good(leaf, "C", now.Add(tt.after))
		if want := strings.Replace(tt.want, " R ", " "+tt.file+" ", 1); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", tt.what, err, want)
		}
		if tt.want == "" && (until.Before(now.Add(23*time.Hour)) || until.After(now.Add(25*time.Hour))) {
			t.Errorf("%s: good until %v, which is not in a day", tt.what, until)
		}
	}
}

// With another certificate, the response of the old one is no good any more.
func TestStapleEndsWithItsCertificate(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	p := pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey())
	p.OCSP = filepath.Join(dir, "ocsp.der")
	use := func(path string) { t.Helper(); replace(t, p.OCSP, must(os.ReadFile(path))) }
	use(respond(t, ca, p.Cert, "V", "-sha1"))
	s := load(t, Spec{Certificates: []Pair{p}}, nil)
	stapled := func() []byte {
		t.Helper()
		if _, err := s.Refresh(); err != nil {
			t.Error(err)
		}
		return shake(t, s.Config(), &tls.Config{ServerName: "a.test", RootCAs: ca.pool()}).client.OCSPResponse
	}
	if stapled() == nil {
		t.Error("nothing is stapled")
	}
	replace(t, p.Cert, ca.issue(ecKey(), nil, "a.test"))
	if stapled() != nil || count(s.Warnings(), "is not about certificate") != 1 {
		t.Errorf("the old response is stapled, or nothing is said of it: %q", s.Warnings())
	}
	use(respond(t, ca, p.Cert, "V", "-sha1"))
	if !bytes.Equal(stapled(), must(os.ReadFile(p.OCSP))) || len(s.Warnings()) != 0 {
		t.Errorf("the new response is not stapled: %q", s.Warnings())
	}
}

// Whatever a file holds is told apart without harm. The corpus has responses of
// OpenSSL about the certificate 1001 of this authority.
func FuzzOCSP(f *testing.F) {
	issuer := must(asn1.Marshal(pkix.Name{CommonName: "ca"}.ToRDNSequence()))
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1001), RawIssuer: issuer}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Add([]byte{})
	f.Add(must(asn1.Marshal(struct{ S asn1.Enumerated }{6})))
	f.Add(must(asn1.Marshal(ocspResponse{Bytes: ocspBytes{Type: idBasicOCSP, Response: []byte{0x30, 0}}})))
	f.Fuzz(func(t *testing.T, der []byte) {
		singles, err := parseOCSP(der)
		if err != nil {
			return
		}
		s := &staple{path: "R", raw: der, singles: singles}
		until, err := s.good(leaf, "C", now)
		if err == nil && !until.IsZero() && !until.After(now) {
			t.Errorf("good until %v, which is past", until)
		}
		if err == nil && !bytes.Contains(der, []byte{2, 2, 3, 0xe9}) {
			t.Error("good for a certificate whose number is nowhere in it")
		}
	})
}
