package config

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/poise-lb/poise/l4"
)

// endpoint is "host:port" taken apart. A host that is not given is the zero
// Addr; a single port is a range of one.
type endpoint struct {
	addr   netip.Addr
	lo, hi uint16
}

// hostName matches what is a name rather than a mistyped address.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_.-]*[A-Za-z_][A-Za-z0-9_.-]*$`)

// parseEndpoint reads "1.2.3.4:80", "[::1]:80", ":80" and, with ports, a range
// "1.2.3.4:80-90". The problem is "" or what is wrong and would be right;
// isName tells that the host is a name, about which the caller has more to say.
func parseEndpoint(s string, ports bool) (e endpoint, isName bool, problem string) {
	orAll := ""
	if ports { // of a listener
		orAll = ", or nothing for every address"
	}
	if strings.HasPrefix(s, "srv:") {
		return e, true, ""
	}
	if ports && (strings.HasPrefix(s, "unix:") || strings.HasPrefix(s, "/")) {
		return e, false, fmt.Sprintf(`%s is a socket in the file system, and services listen on TCP and UDP alone; write "address:port", such as "127.0.0.1:5432"`, quote(s))
	}
	if strings.HasPrefix(s, "/") {
		return e, false, fmt.Sprintf(`%s is the path of a file; write "address:port", or unix:%s for a socket there`, quote(s), s)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		if isDecimal(s) {
			return e, false, fmt.Sprintf(`%s is a port alone; write "address:%s", such as "127.0.0.1:%s"`, quote(s), s, s)
		}
		return e, false, fmt.Sprintf(`%s has no port; write "address:port"`, quote(s))
	}
	host, port := s[:i], s[i+1:]
	inner, bracketed := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	switch {
	case bracketed != closed:
		return e, false, fmt.Sprintf(`%s has one bracket; write "[address]:port"`, quote(s))
	case !bracketed && strings.Contains(host, ":"):
		return e, false, fmt.Sprintf(`%s is IPv6 without brackets; write "[address]:port", such as "[::1]:80"`, quote(s))
	case host != "":
		a, err := netip.ParseAddr(inner)
		switch {
		case err != nil && !bracketed && hostName.MatchString(host):
			return e, true, ""
		case err != nil || bracketed != a.Is6():
			return e, false, fmt.Sprintf(`%s is not an IP address; write one such as 10.0.0.1 or [::1]%s`, quote(host), orAll)
		case a.Zone() != "":
			return e, false, fmt.Sprintf(`%s has a zone, which is not supported yet; write an address without "%%"`, quote(host))
		}
		e.addr = a.Unmap()
	}
	first, last, isRange := strings.Cut(port, "-")
	if !isRange || !ports {
		first, last = port, port
	}
	var ok1, ok2 bool
	e.lo, ok1 = parsePort(first)
	e.hi, ok2 = parsePort(last)
	switch {
	case !ok1 || !ok2:
		return e, false, fmt.Sprintf("%s is not a port; write a number from 1 to 65535", quote(port))
	case e.lo > e.hi:
		return e, false, fmt.Sprintf(`port range %s runs backwards; write "%d-%d"`, port, e.hi, e.lo)
	}
	return e, false, ""
}

func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && isDecimal(s)
}

// The functions below check one text each: "" if it is right, else what would be.

// name matches what services, pools and backends may be called.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

const nameRule = "use a-z, 0-9, _ and -, starting with a letter or digit"

func isName(s string) string {
	if name.MatchString(s) {
		return ""
	}
	return nameRule
}

// maxSocketPath is sockaddr_un's sun_path without its final zero byte.
const maxSocketPath = 107

func socketPath(s string) string {
	switch {
	case !path.IsAbs(s):
		return "write an absolute path, such as /run/poise/admin.sock"
	case len(s) > maxSocketPath:
		return fmt.Sprintf("a socket path has at most %d bytes, this one %d", maxSocketPath, len(s))
	case !printable(s) || path.Clean(s) != s:
		return fmt.Sprintf("write the path of a file, plainly: %s", quote(path.Clean(s)))
	}
	return ""
}

func accessTarget(s string) string {
	switch {
	case s == "none", s == "stdout":
		return ""
	case !path.IsAbs(s) || path.Clean(s) != s || !printable(s):
		return "write none, stdout or the absolute path of a file"
	}
	return ""
}

func statePath(s string) string {
	if filePath(s) != "" {
		return "write the absolute path of a file, plainly, such as /var/lib/poise/state.json"
	}
	return ""
}

func urlPath(s string) string {
	if !strings.HasPrefix(s, "/") || !printable(s) || strings.ContainsAny(s, " #") {
		return `start it with "/", without blanks or "#", such as /health`
	}
	return ""
}

// hostHeaderValue is RFC 9110's uri-host with an optional port.
var hostHeaderValue = regexp.MustCompile(`^([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])?(:[0-9]+)?$`)

func hostHeader(s string) string {
	if len(s) > 255 || !hostHeaderValue.MatchString(s) {
		return "write a host name, an IP address, either with a port, or nothing for the address that is probed"
	}
	return ""
}

func anyText(string) string { return "" }

// printable reports whether s is visible ASCII and blanks.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// ListenTexts writes addresses as the configuration does, adjacent ports as a
// range.
func ListenTexts(list []l4.Listen) []string {
	texts := []string{}
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n].V6Only == list[i].V6Only &&
			list[i+n].Addr == netip.AddrPortFrom(list[i].Addr.Addr(), list[i].Addr.Port()+uint16(n)) {
			n++
		}
		text := listenText(list[i])
		if n > 1 {
			text += fmt.Sprintf("-%d", list[i+n-1].Addr.Port())
		}
		texts = append(texts, text)
		i += n
	}
	return texts
}

func listenText(l l4.Listen) string {
	if l.Addr.Addr() == netip.IPv6Unspecified() && !l.V6Only {
		return fmt.Sprintf(":%d", l.Addr.Port())
	}
	return l.Addr.String()
}
