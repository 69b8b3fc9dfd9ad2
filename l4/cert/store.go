package cert

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Store is the certificates, authorities and ticket keys of one service. All
// methods may be called at the same time. It has no goroutine and is not closed.
type Store struct {
	// Set once.
	spec   Spec
	config *tls.Config
	now    func() time.Time

	live atomic.Pointer[live] // what handshakes use

	mu sync.Mutex // guards the following; taken by no handshake
	// One a certificate, in the order of the configuration; staples are nil where
	// there is no file.
	pairs   []*part[*pair]
	staples []*part[*staple]
	ca      *part[*authorities] // nil without client_ca
	tickets *part[*ticketRoots] // nil with own keys
	own     [][]byte            // roots of own ticket keys, the newest first
	rotated time.Time           // when the newest was made
}

// live is one state of a store. It is immutable.
type live struct {
	config   *tls.Config
	infos    []Info
	warnings []string  // of staples; those of parts are with the parts
	until    time.Time // when staples have to be looked at again; zero = never
}

// Info is a certificate in use, for metrics and status.
type Info struct {
	Path     string   // of the certificate's file
	Names    []string // DNS names and addresses it is for
	NotAfter time.Time
	KeyType  string // "ECDSA", "Ed25519" or "RSA"
}

// Load reads all files of the spec. Its error names every file that is not as it
// has to be, one a line (it has Unwrap() []error), after the key of the
// configuration that names it. What a service can do without, as an expired
// certificate or an OCSP response that is not there, is among Warnings instead.
//
// Own ticket keys are those of old, the store this one replaces, so that clients
// resume their sessions; nil if there is none.
func Load(spec Spec, old *Store) (*Store, error) {
	if len(spec.Certificates) == 0 {
		return nil, errors.New("tls.certificates: there has to be one")
	}
	s := &Store{spec: spec, now: time.Now}
	for i, p := range spec.Certificates {
		key := fmt.Sprintf("tls.certificates[%d]", i)
		s.pairs = append(s.pairs, &part[*pair]{keys: []string{key + ".cert", key + ".key"}, paths: []string{p.Cert, p.Key}, build: loadPair})
		var ocsp *part[*staple]
		if p.OCSP != "" {
			ocsp = &part[*staple]{keys: []string{key + ".ocsp"}, paths: []string{p.OCSP}, build: loadStaple}
		}
		s.staples = append(s.staples, ocsp)
	}
	if spec.ClientCA != "" {
		s.ca = &part[*authorities]{keys: []string{"tls.client_ca"}, paths: []string{spec.ClientCA}, build: loadAuthorities}
	}
	if spec.TicketKeys != "" {
		s.tickets = &part[*ticketRoots]{keys: []string{"tls.ticket_keys"}, paths: []string{spec.TicketKeys}, build: loadTicketRoots}
	} else if old != nil {
		old.mu.Lock()
		s.own, s.rotated = slices.Clone(old.own), old.rotated
		old.mu.Unlock()
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.config = &tls.Config{
		MinVersion:         s.live.Load().config.MinVersion,
		NextProtos:         spec.ALPN,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.live.Load().config, nil },
	}
	return s, nil
}

func (s *Store) load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs problems
	for _, r := range s.refreshParts() {
		// A response that is not there yet is no reason not to serve.
		if !r.optional {
			errs = append(errs, r.problem...)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	s.rotate()
	s.compose()
	return nil
}

// Config is the server's side of crypto/tls. It stays the same, and good, for as
// long as the store is used: it always shows the files as they were last
// refreshed. A handshake loads one pointer; nothing is parsed and no lock of ours
// is taken. It must not be modified.
func (s *Store) Config() *tls.Config { return s.config }

// Certificates returns those in use, in the order of the configuration. The
// caller must not modify it.
func (s *Store) Certificates() []Info { return s.live.Load().infos }

// Refresh reads what has changed on disk, and does what is due: new ticket keys,
// no more stapling of a response that is too old. It costs one stat a file when
// there is nothing to do. changed lists the files that are used anew. What is not
// as it has to be is in the error, once for every change of the files (it has
// Unwrap() []error); what was loaded before stays in use, and Warnings goes on
// telling.
func (s *Store) Refresh() (changed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty := s.rotate()
	var errs problems
	for _, r := range s.refreshParts() {
		dirty = dirty || r.rebuilt
		if r.changed {
			changed = append(changed, r.paths[0])
		}
		errs = append(errs, r.problem...)
	}
	if until := s.live.Load().until; dirty || !until.IsZero() && !s.now().Before(until) {
		s.compose()
	}
	return changed, errs.orNil()
}

type partNews struct {
	news
	paths    []string
	optional bool
}

func (s *Store) refreshParts() []partNews {
	var all []partNews
	for i, p := range s.pairs {
		all = append(all, partNews{news: p.refresh(), paths: p.paths})
		if o := s.staples[i]; o != nil {
			all = append(all, partNews{news: o.refresh(), paths: o.paths, optional: true})
		}
	}
	if s.ca != nil {
		all = append(all, partNews{news: s.ca.refresh(), paths: s.ca.paths})
	}
	if s.tickets != nil {
		all = append(all, partNews{news: s.tickets.refresh(), paths: s.tickets.paths})
	}
	return all
}

// rotate makes a new own ticket key when one is due.
func (s *Store) rotate() bool {
	now := s.now()
	if s.tickets != nil || len(s.own) > 0 && now.Sub(s.rotated) < rotateEvery {
		return false
	}
	s.own = slices.Concat([][]byte{newTicketRoot()}, s.own)
	s.own = s.own[:min(len(s.own), ownKeys)]
	s.rotated = now
	return true
}

// compose makes the state that handshakes use of all the parts.
func (s *Store) compose() {
	now, l := s.now(), &live{}
	pairs := make([]*pair, len(s.pairs))
	for i, p := range s.pairs {
		one := *p.value
		if o := s.staples[i]; o != nil && o.loaded() {
			until, err := o.value.good(one.cert.Leaf, one.path, now)
			if err != nil {
				l.warnings = append(l.warnings, fmt.Sprintf("%s: %v; nothing is stapled", o.keys[0], err))
			} else {
				one.cert.OCSPStaple = o.value.raw
			}
			if !until.IsZero() && (l.until.IsZero() || until.Before(l.until)) {
				l.until = until
			}
		}
		pairs[i] = &one
		l.infos = append(l.infos, one.info())
	}
	l.config = &tls.Config{
		// Cipher suites, their order and all the rest are the defaults of Go:
		// X25519MLKEM768 is among the key exchanges.
		MinVersion:     cmp.Or(s.spec.MinVersion, tls.VersionTLS12),
		NextProtos:     s.spec.ALPN,
		GetCertificate: newChooser(pairs).get,
	}
	var ca []byte
	if s.ca != nil {
		ca = s.ca.value.id
		l.config.ClientCAs = s.ca.value.pool
		l.config.ClientAuth = tls.RequireAndVerifyClientCert
		if s.spec.ClientOptional {
			l.config.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	roots := s.own
	if s.tickets != nil {
		roots = s.tickets.value.roots
	}
	l.config.SetSessionTicketKeys(ticketKeys(roots, ca))
	s.live.Store(l)
}

func (p *pair) info() Info {
	leaf := p.cert.Leaf
	names := hostNames(leaf)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return Info{Path: p.path, Names: names, NotAfter: leaf.NotAfter, KeyType: p.keyType}
}

func (s *Store) files() []string {
	var all []string
	for _, p := range s.spec.Certificates {
		all = append(all, p.Cert, p.Key, p.OCSP)
	}
	all = append(all, s.spec.ClientCA, s.spec.TicketKeys)
	return slices.DeleteFunc(all, func(path string) bool { return path == "" })
}
