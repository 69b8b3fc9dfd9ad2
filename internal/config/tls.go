package config

import (
	"crypto/tls"
	"strings"

	"github.com/poise-lb/poise/l4/cert"
)

// tlsKeys are the keys of TLS with clients.
func tlsKeys(c *cert.Spec, maxHandshakes *int) []key {
	return []key{
		{
			name: "certificates", typ: "list of certificates", def: none, read: readCertificates(&c.Certificates),
			items: certificateKeys(&cert.Pair{}), form: "[{cert: ..., key: ...}]",
		},
		text("client_ca", "file path, or empty", `""`, &c.ClientCA, plainFileOrNone("/etc/poise/tls/clients.pem")),
		boolean("client_optional", "false", &c.ClientOptional),
		tlsVersion(&c.MinVersion),
		{name: "alpn", typ: "list of protocols", def: none, read: readALPN(&c.ALPN), held: listed(&c.ALPN)},
		text("ticket_keys", "file path, or empty", `""`, &c.TicketKeys, plainFileOrNone("/etc/poise/tls/tickets.key")),
		countFrom("max_handshakes", "1000", maxHandshakes, 1, "1m"),
	}
}

// clientTLSKeys are the keys of TLS with backends.
func clientTLSKeys(p *pool) []key {
	c := &p.tls
	return []key{
		text("server_name", "host name, or empty", `""`, &c.ServerName, plainHost),
		text("ca", "file path, or empty", `""`, &c.CA, plainFileOrNone("/etc/poise/tls/ca.pem")),
		text("cert", "file path, or empty", `""`, &c.Cert, plainFileOrNone("/etc/poise/tls/poise.crt")),
		text("key", "file path, or empty", `""`, &c.Key, plainFileOrNone("/etc/poise/tls/poise.key")),
		boolean("verify", "true", &c.Verify),
		{name: "alpn", typ: "list of protocols", def: none, read: readALPN(&c.ALPN), held: listed(&c.ALPN)},
		tlsVersion(&c.MinVersion),
		choice("starttls", "none", &p.startTLS, starttls),
	}
}

// certificateKeys are the keys of an item of tls.certificates.
func certificateKeys(p *cert.Pair) []key {
	return []key{
		text("cert", "file path", required, &p.Cert, plainFile("/etc/poise/tls/a.crt")),
		text("key", "file path", required, &p.Key, plainFile("/etc/poise/tls/a.key")),
		text("ocsp", "file path, or empty", `""`, &p.OCSP, plainFileOrNone("/etc/poise/tls/a.ocsp")),
	}
}

// tlsVersion is the lowest version that is spoken.
func tlsVersion(dst *uint16) key {
	return choice("min_version", `"1.2"`, dst, []meaning[uint16]{{"1.2", tls.VersionTLS12}, {"1.3", tls.VersionTLS13}})
}

func readCertificates(dst *[]cert.Pair) func(*value) {
	return func(v *value) {
		if !v.is(list, "[{cert: /etc/poise/tls/a.crt, key: /etc/poise/tls/a.key}]") {
			return
		}
		pairs := []cert.Pair{}
		if len(v.items) == 0 {
			v.fail("an empty list; write at least one certificate, such as [{cert: /etc/poise/tls/a.crt, key: /etc/poise/tls/a.key}]")
		}
		seen := map[string]bool{}
		for _, item := range v.elements() {
			pair := cert.Pair{}
			o := newObject(v.report, item.path, item.at, nil)
			if !o.read(item.node, certificateKeys(&pair)) {
				v.bad = true
				continue
			}
			for _, k := range []string{"cert", "key"} {
				if !o.has(k) {
					o.problem([]string{k}, "missing; write the absolute path of a file in PEM")
				}
			}
			if seen[pair.Cert] && pair.Cert != "" {
				o.problem([]string{"cert"}, "%s is in this list already; keep one", quote(o.told("cert", pair.Cert)))
			}
			seen[pair.Cert] = true
			pairs = append(pairs, pair)
		}
		if !v.bad {
			*dst = pairs
		}
	}
}

// finishTLS applies the rules of tls that concern several keys of a service.
func (s *service) finishTLS() {
	c := s.tls
	switch {
	case s.gives("tls") && !s.givesBelow("tls"):
		s.refuseEmptyTLS("write certificates: [{cert: /etc/poise/tls/a.crt, key: /etc/poise/tls/a.key}]")
		return // it is off
	case len(c.Certificates) == 0:
		if s.has("tls") {
			s.problem([]string{"tls", "tls.certificates"},
				"has no certificate; write one, such as certificates: [{cert: /etc/poise/tls/a.crt, key: /etc/poise/tls/a.key}]")
		}
		return
	case s.gives("tls.client_optional") && c.ClientOptional && c.ClientCA == "":
		s.problem([]string{"tls.client_optional", "tls.client_ca"}, "has no effect without client_ca: no client is asked for a certificate; set client_ca, or remove it")
	}
	s.TLS = &c
}

// finishTLS applies the rules of tls that concern several keys of a pool.
func (p *pool) finishTLS() {
	switch {
	case !p.has("tls"):
		return
	case p.gives("tls") && !p.givesBelow("tls"):
		p.refuseEmptyTLS("write verify: true to turn it on as it is by default")
		return // it is off
	}
	c := p.tls
	switch {
	case c.Cert != "" && c.Key == "":
		p.problem([]string{"tls.cert", "tls.key"}, "has no key; write the key of the certificate as key, or remove it")
	case c.Cert == "" && c.Key != "":
		p.problem([]string{"tls.key", "tls.cert"}, "has no certificate; write the certificate of the key as cert, or remove it")
	}
	if p.gives("tls.ca") && !c.Verify && c.CA != "" {
		p.problem([]string{"tls.ca", "tls.verify"}, "nothing is verified against it with verify: false; remove one of the two")
	}
	if c.Verify && c.ServerName == "" {
		for _, b := range p.backends {
			if what := b.nameless(); what != "" {
				p.problem([]string{"tls", "tls.server_name", "tls.verify"},
					"the certificate of %s has to be for a name, which nothing says; write server_name, or verify: false", what)
				break
			}
		}
	}
	p.TLS, p.StartTLS = &c, p.startTLS
}

// refuseEmptyTLS reports tls: {} where there is nothing inherited that it turns off:
// who has written it wants TLS, and would not have it.
func (o *object) refuseEmptyTLS(right string) {
	if !o.above.givesBelow("tls") {
		o.problem([]string{"tls"}, "is empty, which turns off TLS that is inherited, and none is; %s, or remove it", right)
	}
}

// nameless returns what is there to say about a backend whose address is not what
// its certificate is issued for, or "".
func (b backend) nameless() string {
	switch {
	case b.name.Host != "":
		return b.shown()
	case b.Addr.Unix != "":
		return "the socket " + b.path()
	}
	return ""
}

// givesBelow reports whether the object itself gives a key of a section.
func (o *object) givesBelow(section string) bool {
	for k := range o.given {
		if strings.HasPrefix(k, section+".") {
			return true
		}
	}
	return false
}
