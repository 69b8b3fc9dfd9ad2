package control

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// zone starts a name server that knows these records and returns its address.
func zone(t *testing.T, records ...string) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, text := range records {
			if rr, err := dns.NewRR(text); err == nil && rr.Header().Name == q.Question[0].Name && rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	})}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ActivateAndServe() })
	<-started
	t.Cleanup(func() {
		_ = server.Shutdown()
		running.Wait()
	})
	return pc.LocalAddr().String()
}

// TestDiscovered is what backends a pool has by names, addresses and a file.
func TestDiscovered(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("10.0.0.1:5432 name=again\n10.0.0.9:80 name=db1 weight=7\nunix:/run/a.sock\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	server := zone(t,
		"db.internal. 60 A 10.0.0.2", "db.internal. 60 A 10.0.0.1", "db.internal. 60 AAAA 2001:db8::1",
		"_pg._tcp.internal. 60 SRV 10 0 5432 db.internal.", "_pg._tcp.internal. 60 SRV 5 30 5433 db.internal.", "_pg._tcp.internal. 60 SRV 5 0 5434 db.internal.",
	)
	for _, tt := range []struct {
		name, keys string
		want       string // name, weight, backup, max_connections, flags of each
	}{
		{"a name", "backends: [db.internal:80], max_connections: 9, check: {initial: down}", `
db.internal/10.0.0.1:80 100 false 9 down
db.internal/10.0.0.2:80 100 false 9 down
db.internal/[2001:db8::1]:80 100 false 9 down`},
		{"in order", `balance: round-robin, backends: ["10.0.0.7:80", {name: x, address: "db.internal:80", weight: 5, backup: true, max_connections: 3}, "10.0.0.8:80"]`, `
10.0.0.7:80 100 false 0 up
x/10.0.0.1:80 5 true 3 up
x/10.0.0.2:80 5 true 3 up
x/[2001:db8::1]:80 5 true 3 up
10.0.0.8:80 100 false 0 up`},
		{"an address that is there by itself", `backends: ["db.internal:5432", {name: db1, address: "10.0.0.1:5432", weight: 1}]`, `
db.internal/10.0.0.2:5432 100 false 0 up
db.internal/[2001:db8::1]:5432 100 false 0 up
db1 1 false 0 up`},
		{"one family", "source: 10.0.0.9, backends: [db.internal:80]", `
db.internal/10.0.0.1:80 100 false 0 up
db.internal/10.0.0.2:80 100 false 0 up`},
		{"SRV", "source: 10.0.0.9, backends: [srv:_pg._tcp.internal]", `
_pg._tcp.internal/10.0.0.1:5433 30 false 0 up
_pg._tcp.internal/10.0.0.1:5434 1 false 0 up
_pg._tcp.internal/10.0.0.2:5433 30 false 0 up
_pg._tcp.internal/10.0.0.2:5434 1 false 0 up
_pg._tcp.internal/10.0.0.1:5432 1 true 0 up
_pg._tcp.internal/10.0.0.2:5432 1 true 0 up`},
		{"a file beside others", `backends: [{name: db1, address: "10.0.0.1:5432"}], backends_file: ` + list, `
db1 100 false 0 up
db1/10.0.0.9:80 7 false 0 up
unix:/run/a.sock 100 false 0 up`},
		{"nothing", "backends: [nobody.internal:80]", "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.keys, "internal") {
				tt.keys += fmt.Sprintf(", resolve: {servers: [%q]}", server)
			}
			file := parse(t, "services: {}\npools: {pg: {"+tt.keys+"}}")
			x := newDiscovery(slog.New(slog.NewTextHandler(io.Discard, nil)))
			defer x.close()
			x.prepare(t.Context(), nil, file.Pools)()
			got := ""
			for _, b := range x.backends(file.Pools[0]) {
				got += fmt.Sprintf("\n%s %d %t %d %s", b.Name, b.Weight, b.Backup, b.MaxConnections, b.Initial)
			}
			if diff := cmp.Diff(strings.TrimSpace(tt.want), strings.TrimSpace(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
