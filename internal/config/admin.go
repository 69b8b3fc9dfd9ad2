package config

import (
	"net/netip"
	"strings"
)

// readAdminHosts stores names in lower case.
func readAdminHosts(dst *[]string) func(*value) {
	return func(v *value) {
		if !v.is(list, "[lb1.example.org]") {
			return
		}
		names, ok := v.texts("lb1.example.org", adminHost)
		for i := range names {
			names[i] = strings.ToLower(names[i])
		}
		if ok && !v.twice(names) {
			*dst = names
		}
	}
}

func adminHost(s string) string {
	s = strings.ToLower(s)
	host, _, hasPort := strings.Cut(s, ":")
	_, err := netip.ParseAddr(strings.Trim(s, "[]"))
	switch {
	case err == nil:
		return "whoever asks by an address is answered anyway; remove it"
	case s == "localhost":
		return "whoever asks by localhost is answered anyway; remove it"
	case hasPort && isHost(host):
		return "write it without the port: " + quote(host)
	case strings.HasSuffix(s, ".") && isHost(strings.TrimSuffix(s, ".")):
		return "write it without the final dot: " + quote(strings.TrimSuffix(s, "."))
	case !isHost(s):
		return "write a whole host name, such as lb1.example.org"
	}
	return ""
}
