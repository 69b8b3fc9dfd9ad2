package cert

import (
	"bytes"
	"crypto"
	_ "crypto/sha1"   // both hashes are in use
	_ "crypto/sha256" // in OCSP responses
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// The part of an OCSP response (RFC 6960 section 4.2.1) that tells which
// certificates it is about and for how long. Its signature is for the client to
// check, who has the authority's certificate for certain.
type (
	ocspResponse struct {
		Status asn1.Enumerated
		Bytes  ocspBytes `asn1:"explicit,tag:0,optional"`
	}
	ocspBytes struct {
		Type     asn1.ObjectIdentifier
		Response []byte
	}
	ocspBasic struct {
		Data ocspData
		Rest asn1.RawValue // the algorithm; signature and certificates follow
	}
	ocspData struct {
		Version   int `asn1:"explicit,tag:0,default:0,optional"`
		Responder asn1.RawValue
		Produced  time.Time `asn1:"generalized"`
		Singles   []ocspSingle
	}
	ocspSingle struct {
		ID      ocspID
		Good    asn1.Flag     `asn1:"tag:0,optional"`
		Revoked asn1.RawValue `asn1:"tag:1,optional"`
		Unknown asn1.Flag     `asn1:"tag:2,optional"`
		This    time.Time     `asn1:"generalized"`
		Next    time.Time     `asn1:"generalized,explicit,tag:0,optional"`
	}
	ocspID struct {
		Hash      pkix.AlgorithmIdentifier
		NameHash  []byte
		KeyHash   []byte
		SerialNum *big.Int
	}
)

var (
	idBasicOCSP = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}
	ocspHashes  = map[string]crypto.Hash{
		"1.3.14.3.2.26":          crypto.SHA1,
		"2.16.840.1.101.3.4.2.1": crypto.SHA256,
	}
)

// staple is a well-formed OCSP response.
type staple struct {
	path    string
	raw     []byte
	singles []ocspSingle
}

func loadStaple(files []content) (*staple, error) {
	f := &files[0]
	if f.err != nil {
		return nil, f.failed("file")
	}
	singles, err := parseOCSP(f.data)
	if err != nil {
		return nil, fmt.Errorf("file %s %w", f.path, err)
	}
	return &staple{path: f.path, raw: f.data, singles: singles}, nil
}

func parseOCSP(der []byte) ([]ocspSingle, error) {
	var r ocspResponse
	if rest, err := asn1.Unmarshal(der, &r); err != nil || len(rest) > 0 {
		return nil, errors.New("is not an OCSP response in DER")
	}
	if r.Status != 0 {
		return nil, fmt.Errorf("is an OCSP response that says only that the responder failed (status %d)", r.Status)
	}
	if !r.Bytes.Type.Equal(idBasicOCSP) {
		return nil, errors.New("is an OCSP response of a type that is not in use")
	}
	var basic ocspBasic
	if _, err := asn1.Unmarshal(r.Bytes.Response, &basic); err != nil {
		return nil, fmt.Errorf("is a broken OCSP response: %w", err)
	}
	return basic.Data.Singles, nil
}

// about returns what the response says about a certificate.
func (s *staple) about(leaf *x509.Certificate) (*ocspSingle, bool) {
	for i := range s.singles {
		one := &s.singles[i]
		if one.ID.SerialNum == nil || one.ID.SerialNum.Cmp(leaf.SerialNumber) != 0 {
			continue
		}
		if hash, ok := ocspHashes[one.ID.Hash.Algorithm.String()]; ok {
			h := hash.New()
			h.Write(leaf.RawIssuer)
			if !bytes.Equal(h.Sum(nil), one.ID.NameHash) {
				continue // another authority's certificate with the same number
			}
		}
		return one, true
	}
	return nil, false
}

// good tells whether the response may be stapled to the certificate, and until when
// this is so; the zero time is for ever. Clients hang up on a bad staple, and live
// with none.
func (s *staple) good(leaf *x509.Certificate, crt string, now time.Time) (until time.Time, err error) {
	one, ok := s.about(leaf)
	switch {
	case !ok:
		err = fmt.Errorf("OCSP response %s is not about certificate %s", s.path, crt)
	case !bool(one.Good):
		err = fmt.Errorf("OCSP response %s does not say that certificate %s is good: it is revoked or unknown", s.path, crt)
	case now.Add(clockSkew).Before(one.This):
		until = one.This.Add(-clockSkew)
		err = fmt.Errorf("OCSP response %s is not good before %s", s.path, day(one.This))
	case !one.Next.IsZero() && !now.Before(one.Next):
		err = fmt.Errorf("OCSP response %s was good until %s", s.path, day(one.Next))
	default:
		until = one.Next
	}
	return until, err
}

// clockSkew is by how much the responder's clock may be ahead.
const clockSkew = 5 * time.Minute

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
