package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiffDiscovery is what a reload says about names and files.
func TestDiffDiscovery(t *testing.T) {
	old := parsed(t, `
services: {}
pools: {pg: {backends: ["db1:80", {name: x, address: "db2:80"}, "srv:_pg._tcp.internal"], backends_file: /a}}`)
	now := parsed(t, `
services: {}
pools: {pg: {backends: ["db3:80", {name: y, address: "db2:80", weight: 5}, "srv:_pg._tcp.internal"], backends_file: /b, max_connections: 5, resolve: {servers: [10.0.0.53], hold: 1m}}}`)
	want := []string{
		"pool pg: backend db2:80: name x -> y",
		"pool pg: backend db2:80: weight 100 -> 5",
		"pool pg: backend db2:80: max_connections 0 -> 5",
		"pool pg: backend srv:_pg._tcp.internal: max_connections 0 -> 5",
		"pool pg: backend db3:80 added",
		"pool pg: backend db1:80 removed",
		"pool pg: max_connections 0 -> 5",
		"pool pg: backends_file /a -> /b",
		"pool pg: resolve.servers the host's -> 10.0.0.53:53",
		"pool pg: resolve.hold 10m0s -> 1m0s",
	}
	if diff := cmp.Diff(want, Diff(old, now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
