package cert

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Own keys: a new one encrypts for rotateEvery, and decrypts for ownKeys times
// that. Longer would let who steals a key read the TLS 1.2 sessions of days.
const (
	rotateEvery = 8 * time.Hour
	ownKeys     = 3
)

// Of a file: shorter keys would weaken what they protect, more of them cost
// every handshake with a ticket that nobody has the key of.
const (
	minTicketKey = 32
	maxTicketKey = 256
	maxKeys      = 16
)

// ticketRoots is what the keys of session tickets are derived from, the newest,
// which encrypts, first.
type ticketRoots struct {
	roots    [][]byte
	warnings []string
}

// loadTicketRoots reads a file with one key a line, in hexadecimal or base64.
// Empty lines and those that begin with # say nothing.
func loadTicketRoots(files []content) (*ticketRoots, error) {
	f := &files[0]
	if f.err != nil {
		return nil, f.failed("file")
	}
	t := &ticketRoots{warnings: f.exposed()}
	for i, line := range strings.Split(string(f.data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, err := parseTicketKey(line)
		if err != nil {
			return nil, fmt.Errorf("file %s: line %d: %w", f.path, i+1, err)
		}
		t.roots = append(t.roots, key)
	}
	switch n := len(t.roots); {
	case n == 0:
		return nil, fmt.Errorf("file %s holds no key; make one with: openssl rand -base64 48", f.path)
	case n > maxKeys:
		return nil, fmt.Errorf("file %s holds %d keys; more than %d are of no use", f.path, n, maxKeys)
	}
	return t, nil
}

// parseTicketKey never repeats the key in its error: that ends up in logs.
func parseTicketKey(line string) ([]byte, error) {
	// Sixty-four hexadecimal digits are also good base64, but by chance they are not.
	key, err := hex.DecodeString(line)
	if err != nil {
		key, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(line, "="))
	}
	switch {
	case err != nil:
		return nil, errors.New("a key is written in hexadecimal or base64, and stands alone on its line")
	case len(key) < minTicketKey || len(key) > maxTicketKey:
		return nil, fmt.Errorf("the key has %d bytes; %d to %d are right", len(key), minTicketKey, maxTicketKey)
	}
	return key, nil
}

// ticketKeys derives the keys that crypto/tls is given (HKDF, RFC 5869). They
// differ with the authorities clients are checked against: a ticket carries the
// client's identity, and a service must not believe one which another service,
// or this one before its authorities changed, has verified.
func ticketKeys(roots [][]byte, ca []byte) [][32]byte {
	keys := make([][32]byte, len(roots))
	for i, root := range roots {
		// It fails only for lengths that HKDF does not have.
		key, err := hkdf.Key(sha256.New, root, nil, "poise session ticket\x00"+string(ca), 32)
		if err != nil {
			panic(err)
		}
		keys[i] = [32]byte(key)
	}
	return keys
}

func newTicketRoot() []byte {
	root := make([]byte, minTicketKey)
	rand.Read(root) // never fails: crypto/rand
	return root
}

func idOf(certs []*x509.Certificate) []byte {
	h := sha256.New()
	for _, c := range certs {
		one := sha256.Sum256(c.Raw)
		h.Write(one[:])
	}
	return h.Sum(nil)
}
