package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/cert"
)

// A reload says what it has found changed in files whose names have not.
func TestFileChanges(t *testing.T) {
	dir := t.TempDir()
	list, crt, key := filepath.Join(dir, "list"), filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	put := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(until time.Time) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until, DNSNames: []string{"a.test"}}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		put(crt, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
		put(key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	}
	spec := config.Service{
		Name:  "web",
		Admit: admit.Spec{AllowFiles: []string{list}},
		TLS:   &cert.Spec{Certificates: []cert.Pair{{Cert: crt, Key: key}}},
	}
	read := func(old *generation, services ...config.Service) *generation {
		g := &generation{file: &config.File{Services: services}}
		if err := g.planServices(old); err != nil {
			t.Fatal(err)
		}
		return g
	}
	expect := func(old, now *generation, want ...string) {
		t.Helper()
		if got := fileChanges(old, now); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	put(list, "10.0.0.0/8")
	issue(time.Now().Add(time.Hour))
	first := read(&generation{}, spec)
	expect(&generation{}, first) // a new service is told of as such
	expect(first, read(first, spec))

	put(list, "10.0.0.0/8\n192.0.2.1\n")
	issue(time.Now().Add(2 * time.Hour))
	second := read(first, spec)
	expect(first, second,
		"service web: access: the files have changed; prefixes, when merged: allowed 1 -> 2, denied 0 -> 0",
		"service web: tls: the certificates have changed")

	// What the configuration itself changes is told already.
	other := spec
	other.Admit.DenyFiles, other.TLS = []string{list}, nil
	expect(second, read(second, other))
}
