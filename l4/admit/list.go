package admit

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/poise-lb/poise/l4/disk"
)

// maxList bounds a file of prefixes, some three million of them.
const maxList = 64 << 20

// lists are the prefixes of a policy. Set once.
type lists struct {
	deny, allow bart.Lite
	denies      bool // deny has something in it
	restricted  bool // there is an allow list
}

// load compiles the lists of s. The error holds all that is wrong in its files.
func (l *lists) load(s *Spec) error {
	err := errors.Join(
		fill(&l.deny, s.Deny, s.DenyFiles, "access.deny_files"),
		fill(&l.allow, s.Allow, s.AllowFiles, "access.allow_files"),
	)
	l.denies = l.deny.Size() > 0
	l.restricted = len(s.Allow)+len(s.AllowFiles) > 0
	return err
}

// permit reports whether a may come in.
func (l *lists) permit(a netip.Addr) bool {
	if !l.denies && !l.restricted {
		return true
	}
	a = a.Unmap()
	if l.denies && l.deny.Contains(a) {
		return false
	}
	return !l.restricted || l.allow.Contains(a)
}

// fill adds prefixes and what is in files; the key is where the configuration names
// these, for messages.
func fill(t *bart.Lite, prefixes []netip.Prefix, files []string, key string) error {
	for _, p := range prefixes {
		if !p.IsValid() {
			return fmt.Errorf("list: %v", p)
		}
		t.Insert(unmap(p))
	}
	var errs []error
	for i, name := range files {
		at := fmt.Sprintf("%s[%d]: ", key, i)
		data, _, err := disk.Read(name, maxList)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", at, err)) // names the file
			continue
		}
		errs = append(errs, parseList(at+name, data, t.Insert))
	}
	t.Aggregate()
	return errors.Join(errs...)
}

// maxErrors is how many bad lines of one file are reported: enough to see what
// went wrong, few enough to read.
const maxErrors = 10

// parseList gives every prefix of a file to add: one a line, an address counts as
// the prefix that holds just it, "#" starts a comment. The error names the bad
// lines, as "name:line: what is wrong".
func parseList(name string, data []byte, add func(netip.Prefix)) error {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // some editors begin a file so
	var errs []error
	n, bad := 0, 0
	for line := range bytes.Lines(data) {
		n++
		line, _, _ := bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, err := parsePrefix(string(line))
		if err == nil {
			add(p)
			continue
		}
		if bad++; bad <= maxErrors {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, n, err))
		}
	}
	if bad > maxErrors {
		errs = append(errs, fmt.Errorf("%s: %d more bad lines", name, bad-maxErrors))
	}
	return errors.Join(errs...)
}

// parsePrefix reads an address or a prefix. A prefix with bits beyond its length is
// refused: 10.0.0.1/8 may have meant one address, and would be sixteen million.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, unreadable(s)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, unreadable(s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits beyond its length; want %v, or the address %v alone", s, p.Masked(), p.Addr())
	}
	return unmap(p), nil
}

func unreadable(s string) error {
	const longest = 60 // a file of something else entirely should not fill the screen
	if len(s) > longest {
		s = s[:longest] + "..."
	}
	return fmt.Errorf("%q is neither an address nor a prefix, such as 192.0.2.0/24 or 2001:db8::/32", s)
}

// unmap returns a prefix of IPv4-mapped addresses as the IPv4 prefix it is: clients
// are compared unmapped.
func unmap(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p
}
