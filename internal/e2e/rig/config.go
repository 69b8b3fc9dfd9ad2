package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/loadgen"
)

// WebConfig is a configuration of one service, web, over one pool, web. Service
// and pool are further keys in YAML's flow style, "" for none.
func WebConfig(listen, service, pool string, backends ...string) string {
	keys := func(s string) string {
		if s == "" {
			return ""
		}
		return s + ", "
	}
	return fmt.Sprintf("services:\n  web: {%slisten: [%q], pool: web}\npools:\n  web: {%sbackends: [%s]}\n",
		keys(service), listen, keys(pool), strings.Join(backends, ", "))
}

// TwoServices is a configuration of the services one and two over a pool each of
// one backend, without checks. Service is a further key of both, "" for none.
func TwoServices(one, two, service, addrOne, addrTwo string) string {
	return fmt.Sprintf(`
defaults: {services: {%s}, pools: {balance: first, check: {type: none}}}
services:
  one: {listen: [%q], pool: one}
  two: {listen: [%q], pool: two}
pools:
  one: {backends: [%s]}
  two: {backends: [%s]}
`, service, one, two, Member("db1", addrOne), Member("db1", addrTwo))
}

// Member is a backend of WebConfig; more is further keys such as "weight: 0".
func Member(name string, address any, more ...string) string {
	keys := append([]string{"name: " + name, fmt.Sprintf("address: %q", fmt.Sprint(address))}, more...)
	return "{" + strings.Join(keys, ", ") + "}"
}

// OneService is a configuration of one service, web, over one pool, web.
func OneService(listen, balance string, backends ...*loadgen.Backend) string {
	return fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen, OnePool("web", balance, "", backends...))
}

// OnePool is a pool of backends by their names; more is further keys, each on a
// line of its own after four spaces.
func OnePool(name, balance, more string, backends ...*loadgen.Backend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:\n    balance: %s\n%s    backends:\n", name, balance, more)
	for _, be := range backends {
		fmt.Fprintf(&b, "      - {name: %s, address: %q}\n", be.Name(), be.Addr())
	}
	return b.String()
}

// WriteFile puts a configuration into a folder of its own.
func WriteFile(t *testing.T, yaml string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "poise.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Weighted is a configuration of the pool web of two backends in turn.
func Weighted(listen string, a, b *loadgen.Backend, weightA, weightB int) string {
	return WebConfig(listen, "", "balance: round-robin, check: {type: none}",
		Member("a", a.Addr(), fmt.Sprintf("weight: %d", weightA)), Member("b", b.Addr(), fmt.Sprintf("weight: %d", weightB)))
}

// JSONLog makes the access log one that Ended can read.
const JSONLog = "log: {access_format: json}\n"

// UDPConfig is WebConfig for a service of UDP. Options are keys of its section udp.
func UDPConfig(listen, options, pool string, backends ...string) string {
	return WebConfig(listen, "protocol: udp, udp: {"+options+"}", pool, backends...)
}
