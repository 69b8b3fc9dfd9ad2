package cert

import (
	"crypto/tls"
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
	if len(cs.VerifiedChains) > 0 && len(cs.PeerCertificates) > 0 {
		subject := &cs.PeerCertificates[0].Subject
		t.Subject, t.CommonName = subject.String(), subject.CommonName
	}
	return t
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
