package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
)

// hosts are the names by which requests may call the read-only address, beside
// addresses and localhost, in lower case.
//
// A web page may give its own host name the address of this server (DNS rebinding),
// and a browser on this host then takes what it reads here for that page's own. But
// its requests carry the page's name.
type hosts struct{ names atomic.Pointer[[]string] }

// only serves h to requests that call the server as they may.
func (k *hosts) only(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := hostName(r.Host); !k.known(name) {
			http.Error(w, fmt.Sprintf("this server is not called %.80q here; ask it by its address, or add the name to admin.hosts", name),
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (k *hosts) known(name string) bool {
	if name == "" || name == "localhost" { // "": HTTP/1.0, which no browser speaks
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	names := k.names.Load()
	return names != nil && slices.Contains(*names, name)
}

// hostName is the name or the address in a Host field: in lower case, without port,
// brackets and the dot of the root.
func hostName(field string) string {
	if host, _, err := net.SplitHostPort(field); err == nil {
		field = host
	}
	field = strings.TrimSuffix(strings.TrimPrefix(field, "["), "]")
	return strings.ToLower(strings.TrimSuffix(field, "."))
}
