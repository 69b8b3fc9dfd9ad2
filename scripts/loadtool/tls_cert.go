package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// tlsCertCommand writes a self-signed certificate for a month, with a key on P-256:
// cert.pem, key.pem, and both in one file, as HAProxy wants them.
func tlsCertCommand(args []string) error {
	flags := flag.NewFlagSet("tls-cert", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder to write cert.pem, key.pem and both.pem to")
	name := flags.String("name", "bench.test", "server's name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("-dir is needed")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: *name},
		DNSNames:     []string{*name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(0, 0, 30),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return errors.Join(
		os.WriteFile(filepath.Join(*dir, "cert.pem"), certPEM, 0o644),
		os.WriteFile(filepath.Join(*dir, "key.pem"), keyPEM, 0o600),
		os.WriteFile(filepath.Join(*dir, "both.pem"), slices.Concat(certPEM, keyPEM), 0o600),
	)
}
