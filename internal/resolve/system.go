package resolve

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/poise-lb/poise/l4/watch"
)

// hostsTTL is how soon a change of /etc/hosts is noticed.
const hostsTTL = 5 * time.Second

// system is what this host says about names: its resolv.conf and hosts files,
// each read again when it has changed.
type system struct {
	mu         sync.Mutex // guards the following
	resolvConf watch.File[[]netip.AddrPort]
	hostsFile  watch.File[map[string][]netip.Addr]
}

func newSystem(resolvConf, hosts string) *system {
	return &system{
		resolvConf: watch.File[[]netip.AddrPort]{Path: resolvConf, Limit: MaxFile, Parse: parseResolvConf},
		hostsFile:  watch.File[map[string][]netip.Addr]{Path: hosts, Limit: MaxFile, Parse: parseHosts},
	}
}

// servers returns the host's name servers. Like the C library it takes one on
// this host if there is no file, or none in it.
func (s *system) servers() ([]netip.AddrPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	servers, err := s.resolvConf.Get()
	if err != nil && !os.IsNotExist(err) && servers == nil {
		return nil, err
	}
	if len(servers) == 0 {
		servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsPort)}
	}
	return servers, nil
}

// hosts returns the addresses of a name in the hosts file. If it cannot be read,
// what it said last is valid.
func (s *system) hosts(name string) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	byName, _ := s.hostsFile.Get()
	return byName[strings.ToLower(name)]
}

// dnsPort is the port of name servers that are given without one.
const dnsPort = 53

func parseResolvConf(data []byte) ([]netip.AddrPort, error) {
	conf, err := dns.ClientConfigFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("resolv.conf: %w", err)
	}
	var servers []netip.AddrPort
	for _, text := range conf.Servers {
		if a, err := netip.ParseAddr(text); err == nil { // the C library too passes over others
			servers = append(servers, netip.AddrPortFrom(a, dnsPort))
		}
	}
	return servers, nil
}

func parseHosts(data []byte) (map[string][]netip.Addr, error) {
	byName := map[string][]netip.Addr{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.Fields(text)
		if len(f) < 2 {
			continue
		}
		a, err := netip.ParseAddr(f[0])
		if err != nil || !usable(a.Unmap()) {
			continue
		}
		for _, name := range f[1:] {
			name = strings.TrimSuffix(strings.ToLower(name), ".")
			byName[name] = append(byName[name], a.Unmap())
		}
	}
	return byName, lines.Err()
}
