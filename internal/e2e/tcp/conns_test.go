package tcp

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

func TestConns(t *testing.T) {
	a, b := rig.Backend(t, "a", loadgen.Behaviour{}), rig.Backend(t, "b", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.Weighted(listen, a, b, 100, 100))
	var held []*rig.Client
	for range 4 {
		c := rig.Dial(t, listen)
		c.MustAsk(t)
		held = append(held, c)
		time.Sleep(100 * time.Millisecond) // for an order: loops list their own at moments that differ by some milliseconds
	}
	list := func(args ...string) admin.ConnList {
		t.Helper()
		stdout, stderr, code := rig.CLI(t, append([]string{"conns", "--json", "--socket", p.Socket()}, args...)...)
		var l admin.ConnList
		if err := json.Unmarshal([]byte(stdout), &l); err != nil || code != 0 {
			t.Fatalf("%v: exit code %d, %v, %q", args, code, err, stderr)
		}
		return l
	}
	all := list().Conns
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	for i, c := range all {
		if c.Client.String() != held[i].LocalAddr().String() || c.Local.String() != listen || c.Service != "web" || c.Pool != "web" ||
			c.State != "open" || c.BytesIn != 6 || c.BytesOut != 8 || c.Age <= 0 || i > 0 && c.Age > all[i-1].Age {
			t.Errorf("number %d: %+v", i, c)
		}
	}
	for _, c := range list("--backend", "a", "--pool", "web").Conns {
		if c.Backend != "a" {
			t.Errorf("%+v", c)
		}
	}
	if n := len(list("--backend", "a").Conns); n != 2 {
		t.Errorf("%d connections to a", n)
	}
	stdout, stderr, code := rig.CLI(t, "conns", "--limit", "1", "--socket", p.Socket())
	if lines := strings.Split(stdout, "\n"); code != 0 || len(lines) != 3 || !strings.HasPrefix(strings.TrimSpace(lines[0]), "CLIENT") ||
		!strings.Contains(lines[1], held[0].LocalAddr().String()) || !strings.Contains(lines[1], "web/"+all[0].Backend) || !strings.Contains(stderr, "oldest 1") {
		t.Errorf("exit code %d, %q\n%s", code, stderr, stdout)
	}
	if code, _, err := p.Get("/v1/conns"); err != nil || code != 404 {
		t.Errorf("clients' addresses are shown to everybody: %d, %v", code, err)
	}
}
