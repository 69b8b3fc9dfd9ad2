package reload

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// TestIdleAdminClients: clients that sit on both admin doors, silent, with half a
// request or with answers they do not read, keep out neither probes, scrapes and
// commands nor traffic; not with few descriptors either, and not when a reload takes
// stock of the descriptors while they are there.
func TestIdleAdminClients(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]func(t *testing.T, yaml string) *rig.Proc{
		"256 descriptors":      func(t *testing.T, yaml string) *rig.Proc { return rig.Start(t, yaml, rig.LimitDescriptors(256)) },
		"descriptors a plenty": func(t *testing.T, yaml string) *rig.Proc { return rig.Start(t, yaml) },
	} {
		t.Run(name, func(t *testing.T) {
			db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
			yaml := rig.OneService(listen, "least-conn", db)
			p := with(t, yaml)
			for i := range 200 {
				for network, address := range map[string]string{"tcp": p.HTTP, "unix": p.Socket()} {
					c, err := net.Dial(network, address)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
					c.SetWriteDeadline(time.Now().Add(rig.Patience)) // it may be closed meanwhile
					switch request := "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"; i % 3 {
					case 1:
						io.WriteString(c, request[:20])
					case 2:
						io.WriteString(c, strings.Repeat(request, 20))
					}
				}
			}
			serves := func(when string) {
				t.Helper()
				for _, path := range []string{"/livez", "/readyz", "/metrics", "/v1/status", "/"} {
					if code, _, err := p.Get(path); code != http.StatusOK {
						t.Errorf("%s: %s is answered %d, %v", when, path, code, err)
					}
				}
				if _, stderr, code := rig.CLI(t, "status", "--socket", p.Socket()); code != 0 {
					t.Errorf("%s: poise status: exit code %d, %s", when, code, stderr)
				}
				// What the data path may have with 256 descriptors: 64 are kept back, and some
				// 30 are in use otherwise; a connection takes two.
				for i := range 70 {
					if name := rig.Dial(t, listen).MustAsk(t); name != "db1" {
						t.Errorf("%s: connection %d is served by %q", when, i, name)
					}
				}
				if n := p.Metrics(t).Sum("poise_accept_errors_total"); n != 0 {
					t.Errorf("%s: %v connections could not be accepted", when, n)
				}
			}
			serves("with a crowd")
		})
	}
}

// TestIdleAdminClientsAtReload: a reload while they are there leaves to traffic what it
// had before.
func TestIdleAdminClientsAtReload(t *testing.T) {
	t.Parallel()
	db, listen := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.Addr(t)
	yaml := rig.OneService(listen, "least-conn", db)
	p := rig.Start(t, yaml, rig.LimitDescriptors(256))
	for range 200 {
		for network, address := range map[string]string{"tcp": p.HTTP, "unix": p.Socket()} {
			c, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
	}
	p.MustReload(t, yaml+"    max_connections: 1000\n")
	for i := range 70 {
		if name := rig.Dial(t, listen).MustAsk(t); name != "db1" {
			t.Fatalf("connection %d is served by %q", i, name)
		}
	}
	if n := p.Metrics(t).Sum("poise_accept_errors_total"); n != 0 {
		t.Errorf("%v connections could not be accepted: %s", n, fmt.Sprint(p.Metrics(t)))
	}
}
