package cert

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// warnAhead is how long before its end a certificate is warned about. Automatic
// renewal is due a month before; what is left two weeks later needs a human.
const warnAhead = 14 * 24 * time.Hour

// Warnings returns what an operator should know of the files as they are now:
// certificates that have expired or will within 14 days, secrets that everybody
// can read, responses that are not stapled, files that are not used because they
// are not as they have to be. A warning that stays keeps its wording.
func (s *Store) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for i, p := range s.pairs {
		all = append(all, warningsOf(p)...)
		all = append(all, prefixed(p.keys[1], p.value.warnings)...)
		all = append(all, prefixed(p.keys[0], lifetime(p.value.path, p.value.cert.Leaf, s.now()))...)
		if o := s.staples[i]; o != nil {
			all = append(all, warningsOf(o)...)
		}
	}
	if s.ca != nil {
		all = append(all, warningsOf(s.ca)...)
		all = append(all, prefixed(s.ca.keys[0], s.ca.value.expired(s.now()))...)
	}
	if s.tickets != nil {
		all = append(all, warningsOf(s.tickets)...)
		all = append(all, prefixed(s.tickets.keys[0], s.tickets.value.warnings)...)
	}
	return append(all, s.live.Load().warnings...)
}

// broken is part of Files.
func (s *Store) broken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i, p := range s.pairs {
		n += len(warningsOf(p))
		if o := s.staples[i]; o != nil {
			n += len(warningsOf(o))
		}
	}
	if s.ca != nil {
		n += len(warningsOf(s.ca))
	}
	if s.tickets != nil {
		n += len(warningsOf(s.tickets))
	}
	return n
}

func warningsOf[T any](p *part[T]) []string {
	var list []string
	for _, err := range p.problem {
		list = append(list, err.Error())
	}
	return list
}

func prefixed(key string, list []string) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = key + ": " + w
	}
	return out
}

// lifetime warns of a certificate that is not good, or not for long.
func lifetime(path string, leaf *x509.Certificate, now time.Time) []string {
	switch {
	case now.After(leaf.NotAfter):
		return []string{fmt.Sprintf("certificate %s has expired on %s", path, day(leaf.NotAfter))}
	case now.Before(leaf.NotBefore):
		return []string{fmt.Sprintf("certificate %s is not valid before %s", path, day(leaf.NotBefore))}
	case leaf.NotAfter.Sub(now) < warnAhead:
		return []string{fmt.Sprintf("certificate %s expires on %s", path, day(leaf.NotAfter))}
	}
	return nil
}

// expired warns when no authority is left. Bundles always have a few dead ones.
func (a *authorities) expired(now time.Time) []string {
	if slices.ContainsFunc(a.certs, func(c *x509.Certificate) bool { return !now.After(c.NotAfter) }) {
		return nil
	}
	return []string{fmt.Sprintf("every authority in %s has expired: no certificate will be accepted", a.path)}
}
