package cert

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"
)

// chooser finds the certificate for a server name. It is immutable; a handshake
// costs it one or two look-ups in a map.
type chooser struct {
	exact    map[string][]*tls.Certificate
	wildcard map[string][]*tls.Certificate // *.example.test under example.test
	standard []*tls.Certificate            // for clients that ask for no name, or for one we do not have
}

// rank orders certificates of one name: elliptic curves cost a server a tenth of
// what RSA does. Whether the client can use it is asked of the client's hello.
func rank(p *pair) int { return slices.Index([]string{"ECDSA", "Ed25519", "RSA"}, p.keyType) }

// newChooser takes the pairs in the order of the configuration; of two with the
// same name and type of key the earlier one is used.
func newChooser(pairs []*pair) *chooser {
	c := &chooser{exact: map[string][]*tls.Certificate{}, wildcard: map[string][]*tls.Certificate{}}
	// What stands in for the default has to be for all of the default's names.
	want := hostNames(pairs[0].cert.Leaf)
	ordered := slices.Clone(pairs)
	slices.SortStableFunc(ordered, func(x, y *pair) int { return rank(x) - rank(y) })
	for _, p := range ordered {
		names := hostNames(p.cert.Leaf)
		for _, name := range names {
			if suffix, ok := strings.CutPrefix(name, "*."); ok {
				c.wildcard[suffix] = append(c.wildcard[suffix], &p.cert)
			} else {
				c.exact[name] = append(c.exact[name], &p.cert)
			}
		}
		if p == pairs[0] || len(want) > 0 && !slices.ContainsFunc(want, func(n string) bool { return !slices.Contains(names, n) }) {
			c.standard = append(c.standard, &p.cert)
		}
	}
	return c
}

// get is a tls.Config.GetCertificate.
func (c *chooser) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := plain(hello.ServerName)
	exact := c.exact[name]
	var wildcard []*tls.Certificate
	if label, suffix, _ := strings.Cut(name, "."); label != "" { // one label: RFC 9525 section 6.3
		wildcard = c.wildcard[suffix]
	}
	if len(exact)+len(wildcard) == 0 {
		exact = c.standard
	}
	if len(exact) == 0 {
		exact, wildcard = wildcard, nil
	}
	if len(exact) == 0 {
		return nil, errNoCertificate
	}
	if len(exact)+len(wildcard) > 1 {
		// The name is settled here: without it the question is only about algorithms.
		nameless := *hello
		nameless.ServerName = ""
		for _, list := range [...][]*tls.Certificate{exact, wildcard} {
			for _, cert := range list {
				if nameless.SupportsCertificate(cert) == nil {
					return cert, nil
				}
			}
		}
	}
	// If it does not suit the client, crypto/tls has the right alert for that.
	return exact[0], nil
}

var errNoCertificate = errors.New("no certificate is loaded")
