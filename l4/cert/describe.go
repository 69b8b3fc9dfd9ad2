package cert

import (
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/poise-lb/poise/l4"
)

// Describe returns what a finished handshake with a client has settled.
func Describe(cs tls.ConnectionState) *l4.TLS {
	t := &l4.TLS{
		// The way OpenSSL, HAProxy and nginx write it.
		Version:    strings.Replace(tls.VersionName(cs.Version), "TLS ", "TLSv", 1),
		Cipher:     tls.CipherSuiteName(cs.CipherSuite),
		ServerName: serverName(cs.ServerName),
		ALPN:       cs.NegotiatedProtocol,
	}
	t.Resumed = cs.DidResume
	if t.Verified = len(cs.VerifiedChains) > 0 && len(cs.PeerCertificates) > 0; t.Verified {
		leaf := cs.PeerCertificates[0]
		t.Subject, t.CommonName = subject(leaf), leaf.Subject.CommonName
	}
	return t
}

// subject is what a certificate calls its owner. Many that are made for machines
// have alternative names only.
func subject(c *x509.Certificate) string {
	name := c.Subject.String()
	switch {
	case name != "":
		return name
	case len(c.URIs) > 0:
		return "URI:" + c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return "DNS:" + c.DNSNames[0]
	case len(c.EmailAddresses) > 0:
		return "email:" + c.EmailAddresses[0]
	case len(c.IPAddresses) > 0:
		return "IP:" + c.IPAddresses[0].String()
	}
	return ""
}

// serverName is the name in lower case. crypto/tls takes up to 64 KiB of whatever
// bytes for one: what can be no name is none, before it is in a log or a header.
func serverName(name string) string {
	const longest = 253 // RFC 1035 section 2.3.4, without the root
	odd := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' }
	if len(name) > longest || strings.ContainsFunc(name, odd) {
		return ""
	}
	return strings.ToLower(name)
}
