package cert

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// pair is a certificate chain with the key of its first certificate.
type pair struct {
	cert     tls.Certificate // Leaf is set
	path     string
	keyType  string
	warnings []string
}

// loadPair makes a pair of two files, which may be one and the same. The errors
// are for those who have to put the files right.
func loadPair(files []content) (*pair, error) {
	crt, key := &files[0], &files[1]
	chain, errCert := readChain(crt)
	private, errKey := readKey(key)
	if errKey != nil {
		errKey = fault{1, errKey}
	}
	if errCert != nil && errKey != nil {
		return nil, problems{errCert, errKey}
	}
	if err := cmp.Or(errCert, errKey); err != nil {
		return nil, err
	}
	leaf := chain[0]
	if !belongs(private, leaf) {
		for i, c := range chain[1:] {
			if belongs(private, c) {
				return nil, fmt.Errorf("certificate %s: the certificate of key %s has to be the first in the file, it is number %d", crt.path, key.path, i+2)
			}
		}
		return nil, fault{1, fmt.Errorf("key %s does not belong to certificate %s", key.path, crt.path)}
	}
	p := &pair{path: crt.path, warnings: key.exposed()}
	var err error
	if p.keyType, err = usable(leaf); err != nil {
		return nil, fmt.Errorf("certificate %s %w", crt.path, err)
	}
	p.cert = tls.Certificate{PrivateKey: private, Leaf: leaf}
	for _, c := range chain {
		p.cert.Certificate = append(p.cert.Certificate, c.Raw)
	}
	return p, nil
}

func readChain(file *content) ([]*x509.Certificate, error) {
	if file.err != nil {
		return nil, file.failed("certificate")
	}
	chain, err := parseChain(file.data)
	if err != nil {
		return nil, fmt.Errorf("certificate %s %w", file.path, err)
	}
	return chain, nil
}

func readKey(file *content) (crypto.Signer, error) {
	if file.err != nil {
		return nil, file.failed("key")
	}
	private, err := parseKey(file.data)
	if err != nil {
		return nil, fmt.Errorf("key %s %w", file.path, err)
	}
	return private, nil
}

// parseChain returns the certificates of a PEM file, at least one.
func parseChain(data []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("is broken: certificate %d of the file: %w", len(chain)+1, err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errors.New("holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")
	}
	return chain, nil
}

// parseKey returns the first private key of a PEM file.
func parseKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return nil, errors.New("holds no private key in PEM, which begins with -----BEGIN PRIVATE KEY-----")
		}
		if block.Type != "PRIVATE KEY" && !strings.HasSuffix(block.Type, " PRIVATE KEY") {
			continue
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return nil, errors.New("is encrypted, and there is nobody to ask for the passphrase: store it decrypted, with mode 0600")
		}
		key, err := parseKeyDER(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("is broken: %w", err)
		}
		return key, nil
	}
}

// parseKeyDER does not go by the label, which is often wrong.
func parseKeyDER(der []byte) (crypto.Signer, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
			return k, nil
		}
		if k, err := x509.ParseECPrivateKey(der); err == nil {
			return k, nil
		}
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signer, nil
}

func belongs(key crypto.Signer, c *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}

// usable returns the type of a certificate's key, or why TLS cannot use it: it
// is better said now than to every client.
func usable(c *x509.Certificate) (string, error) {
	switch k := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return "", errors.New("has a key on the curve P-224, which TLS does not use; P-256 is widely known")
		}
		return "ECDSA", nil
	case *rsa.PublicKey:
		if k.N.BitLen() < 1024 {
			return "", fmt.Errorf("has an RSA key of %d bits, which is too short to be used; 2048 is usual", k.N.BitLen())
		}
		return "RSA", nil
	case ed25519.PublicKey:
		return "Ed25519", nil
	default:
		return "", fmt.Errorf("has a key of a type that TLS does not use (%v)", c.PublicKeyAlgorithm)
	}
}

// hostNames returns the DNS names a certificate is for, in lower case, without
// a trailing dot. Private authorities still sign certificates that have their
// name only in the subject: it counts if there is nothing else.
func hostNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	if len(names) == 0 && len(c.IPAddresses) == 0 {
		if cn := c.Subject.CommonName; cn != "" && !isIP(cn) && !strings.ContainsAny(cn, " /@") {
			names = []string{cn}
		}
	}
	for i, name := range names {
		names[i] = plain(name)
	}
	return names
}

// plain is a host name as names are compared (RFC 6066 section 3, RFC 4343).
func plain(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func isIP(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// authorities is the certificates that others are checked against.
type authorities struct {
	path  string
	pool  *x509.CertPool
	certs []*x509.Certificate
	id    []byte // equal for equal sets of certificates
}

func loadAuthorities(files []content) (*authorities, error) {
	f := &files[0]
	if f.err != nil {
		return nil, f.failed("file")
	}
	certs, err := parseChain(f.data)
	if err != nil {
		return nil, fmt.Errorf("file %s %w", f.path, err)
	}
	a := &authorities{path: f.path, pool: x509.NewCertPool(), certs: certs}
	for _, c := range certs {
		a.pool.AddCert(c)
	}
	sorted := slices.SortedFunc(slices.Values(certs), func(x, y *x509.Certificate) int { return bytes.Compare(x.Raw, y.Raw) })
	a.id = idOf(sorted)
	return a, nil
}
