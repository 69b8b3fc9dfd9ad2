package cert

import (
	"cmp"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Client is the TLS configuration towards the backends of one pool. All methods
// may be called at the same time. It has no goroutine and is not closed.
type Client struct {
	// Set once.
	spec ClientSpec
	now  func() time.Time

	live atomic.Pointer[clientLive]

	mu   sync.Mutex          // guards the following
	ca   *part[*authorities] // nil: those of the system
	pair *part[*pair]        // nil: no certificate of ours
}

// clientLive is one state of a client: the files are those of one moment, and
// sessions are resumed only with what they were begun with.
type clientLive struct {
	base    *tls.Config
	infos   []Info
	configs sync.Map // backend -> *tls.Config
	size    atomic.Int64
}

// maxConfigs bounds the backends remembered: where they come and go all day,
// their names would add up.
const maxConfigs = 4096

// LoadClient reads the files of the spec. Its error is like that of Load.
func LoadClient(spec ClientSpec) (*Client, error) {
	c := &Client{spec: spec, now: time.Now}
	if spec.CA != "" {
		c.ca = &part[*authorities]{keys: []string{"tls.ca"}, paths: []string{spec.CA}, build: loadAuthorities}
	}
	if spec.Cert != "" {
		c.pair = &part[*pair]{keys: []string{"tls.cert", "tls.key"}, paths: []string{spec.Cert, spec.Key}, build: loadPair}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs problems
	for _, r := range c.refreshParts() {
		errs = append(errs, r.problem...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	c.compose()
	return c, nil
}

// Config is the client's side of crypto/tls for one backend: its host name or
// address, with or without a port. The backend's certificate has to be for the
// spec's ServerName or, if there is none, for this name; an address has to be
// among the certificate's addresses. Sessions are resumed per backend, for
// backends do not share their keys. It is cheap, takes no lock once a backend is
// known, and is called anew for every connection: what it returns does not follow
// a Refresh. It must not be modified.
func (c *Client) Config(backend string) *tls.Config {
	l := c.live.Load()
	if known, ok := l.configs.Load(backend); ok {
		return known.(*tls.Config)
	}
	if l.size.Load() >= maxConfigs {
		l.configs.Clear()
		l.size.Store(0)
	}
	config := l.base.Clone()
	if config.ServerName == "" {
		config.ServerName = host(backend)
	}
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	known, loaded := l.configs.LoadOrStore(backend, config)
	if !loaded {
		l.size.Add(1)
	}
	return known.(*tls.Config)
}

// host is the name or address a certificate has to be for. The path of a Unix
// socket is none: crypto/tls then asks for a server name, as it should.
func host(backend string) string {
	if strings.HasPrefix(backend, "/") {
		return ""
	}
	if h, _, err := net.SplitHostPort(backend); err == nil {
		backend = h
	}
	backend = strings.TrimSuffix(strings.TrimPrefix(backend, "["), "]")
	backend, _, _ = strings.Cut(backend, "%") // a zone means something only here
	return strings.TrimSuffix(backend, ".")
}

// Certificates returns the certificate shown to backends, if there is one.
func (c *Client) Certificates() []Info { return c.live.Load().infos }

// Refresh is like that of a Store.
func (c *Client) Refresh() (changed []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var dirty bool
	var errs problems
	for _, r := range c.refreshParts() {
		dirty = dirty || r.changed
		if r.changed {
			changed = append(changed, r.paths[0])
		}
		errs = append(errs, r.problem...)
	}
	if dirty {
		c.compose()
	}
	return changed, errs.orNil()
}

func (c *Client) refreshParts() []partNews {
	var all []partNews
	if c.ca != nil {
		all = append(all, partNews{news: c.ca.refresh(), paths: c.ca.paths})
	}
	if c.pair != nil {
		all = append(all, partNews{news: c.pair.refresh(), paths: c.pair.paths})
	}
	return all
}

func (c *Client) compose() {
	l := &clientLive{base: &tls.Config{
		ServerName:         c.spec.ServerName,
		InsecureSkipVerify: !c.spec.Verify,
		MinVersion:         cmp.Or(c.spec.MinVersion, tls.VersionTLS12),
		NextProtos:         c.spec.ALPN,
	}}
	if c.ca != nil {
		l.base.RootCAs = c.ca.value.pool
	}
	if c.pair != nil {
		crt := &c.pair.value.cert
		// Unlike Certificates, this sends it even if the backend's list of
		// authorities lacks the one that signed it: such lists are often short.
		l.base.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return crt, nil }
		l.infos = []Info{c.pair.value.info()}
	}
	c.live.Store(l)
}

// Warnings is like that of a Store.
func (c *Client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	if c.ca != nil {
		all = append(all, warningsOf(c.ca)...)
		all = append(all, prefixed(c.ca.keys[0], c.ca.value.expired(c.now()))...)
	}
	if c.pair != nil {
		p := c.pair
		all = append(all, warningsOf(p)...)
		all = append(all, prefixed(p.keys[1], p.value.warnings)...)
		all = append(all, prefixed(p.keys[0], lifetime(p.value.path, p.value.cert.Leaf, c.now()))...)
	}
	return all
}

// broken is part of Files.
func (c *Client) broken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if c.ca != nil {
		n += len(warningsOf(c.ca))
	}
	if c.pair != nil {
		n += len(warningsOf(c.pair))
	}
	return n
}

func (c *Client) files() []string {
	return slices.DeleteFunc([]string{c.spec.CA, c.spec.Cert, c.spec.Key}, func(path string) bool { return path == "" })
}
