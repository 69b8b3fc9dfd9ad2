package wire

import "net/netip"

// Package netip parses strings only, and a string of what stands in a buffer would
// be an allocation for each connection; hence these.

// parseAddr reads an IPv4 address or, if v4 is false, an IPv6 address, which is
// unmapped.
func parseAddr(s []byte, v4 bool) (netip.Addr, bool) {
	if v4 {
		a, ok := parseIPv4(s)
		return netip.AddrFrom4(a), ok
	}
	a, ok := parseIPv6(s)
	return netip.AddrFrom16(a).Unmap(), ok
}

// parseIPv4 reads four decimal numbers with dots between them.
func parseIPv4(s []byte) (a [4]byte, ok bool) {
	for i := range a {
		if i > 0 {
			if len(s) == 0 || s[0] != '.' {
				return a, false
			}
			s = s[1:]
		}
		var n int
		if n, s, ok = cutDecimal(s, 255); !ok {
			return a, false
		}
		a[i] = byte(n)
	}
	return a, len(s) == 0
}

// cutDecimal cuts a number from 0 to limit off s, which has no sign and no leading
// zeros.
func cutDecimal(s []byte, limit int) (n int, rest []byte, ok bool) {
	i := 0
	for ; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		if n = n*10 + int(s[i]-'0'); n > limit {
			return 0, s, false
		}
	}
	return n, s[i:], i == 1 || i > 1 && s[0] != '0'
}

// parseIPv6 reads an address in one of the forms of RFC 4291, section 2.2: groups of
// up to four hexadecimal digits, once "::" for one or more groups of zeros, and the
// last two groups perhaps as an IPv4 address. There is no zone.
func parseIPv6(s []byte) (a [16]byte, ok bool) {
	n, gap := 0, -1 // bytes read, and where among them the zeros go
	if len(s) >= 2 && s[0] == ':' && s[1] == ':' {
		gap, s = 0, s[2:]
	} else if len(s) == 0 {
		return a, false
	}
	for len(s) > 0 {
		group, digits := 0, 0
		for digits < len(s) && digits < 5 {
			d, ok := hexDigit(s[digits])
			if !ok {
				break
			}
			group = group<<4 | d
			digits++
		}
		if digits == 0 || digits > 4 || n == len(a) {
			return a, false
		}
		if digits < len(s) && s[digits] == '.' {
			v4, ok := parseIPv4(s)
			if !ok || n > len(a)-len(v4) {
				return a, false
			}
			n += copy(a[n:], v4[:])
			break
		}
		a[n], a[n+1] = byte(group>>8), byte(group)
		n += 2
		if s = s[digits:]; len(s) == 0 {
			break
		}
		if s[0] != ':' || len(s) == 1 {
			return a, false
		}
		if s = s[1:]; s[0] == ':' {
			if gap >= 0 {
				return a, false
			}
			gap, s = n, s[1:]
		}
	}
	if gap < 0 {
		return a, n == len(a)
	}
	if n == len(a) {
		return a, false
	}
	// The groups after the gap belong at the end.
	tail := n - gap
	copy(a[len(a)-tail:], a[gap:n])
	clear(a[gap : len(a)-tail])
	return a, true
}

func hexDigit(c byte) (int, bool) {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0'), true
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}
