package tcp

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/lab"
	"github.com/poise-lb/poise/internal/loadgen"
)

// A gate is the service web with rules of admission over one Named backend.
type gate struct {
	*rig.Proc
	listen string
	db     *loadgen.Backend
}

func newGate(t *testing.T, rules string) *gate {
	t.Helper()
	g := &gate{listen: rig.Addr(t), db: rig.Backend(t, "db1", loadgen.Behaviour{})}
	g.Proc = rig.Start(t, g.yaml(rules))
	return g
}

func (g *gate) yaml(rules string) string {
	return "log: {access_format: json}\n" + rig.WebConfig(g.listen, rules, "check: {type: none}", rig.Member("db1", g.db.Addr()))
}

// enter connects from an address; nil if it was refused, by a reset.
func (g *gate) enter(t *testing.T, source string) *rig.Client {
	t.Helper()
	conn, err := rig.TryFrom(t, source, g.listen)
	if err == nil {
		c := rig.NewClient(conn)
		if _, err = c.Ask(); err == nil {
			return c
		}
	}
	if r := (rig.Reading{Err: err}); !r.Reset() && !rig.IsBroken(err) {
		t.Errorf("refused with %v", err)
	}
	return nil
}

// refusals is how many clients were turned away for a reason.
func (g *gate) refusals(t *testing.T, reason string) float64 {
	t.Helper()
	return g.Metrics(t)[`poise_service_refused_total{reason="`+reason+`",service="web"}`]
}

// Prefixes say who is let in, in the file itself and in others that are read again with
// every reload.
func TestAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	allowed, denied := filepath.Join(dir, "allowed"), filepath.Join(dir, "denied")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(allowed, "# offices\n127.0.2.0/24\n127.0.3.3 # one\n")
	put(denied, "\n")
	g := newGate(t, fmt.Sprintf("access: {allow: [127.0.0.0/29, 127.0.1.0/24], deny: [127.0.0.3], allow_files: [%s], deny_files: [%s]}", allowed, denied))
	check := func(want map[string]bool) {
		t.Helper()
		before, n := g.refusals(t, "refused_acl"), 0.0
		for source, in := range want {
			c := g.enter(t, source)
			if (c != nil) != in {
				t.Errorf("%s: let in: %v", source, c != nil)
			}
			if c != nil {
				c.Close()
			} else {
				n++
			}
		}
		rig.Eventually(t, "the refusals", func() bool { return g.refusals(t, "refused_acl") == before+n })
	}
	want := map[string]bool{
		"127.0.0.2": true, "127.0.0.3": false, "127.0.0.8": false, "127.0.1.255": true,
		"127.0.2.9": true, "127.0.3.3": true, "127.0.3.4": false,
	}
	check(want)
	g.WantLogged(t, `"client":"127.0.3.4"`, `"outcome":"refused_acl"`, `"backend":""`)
	if total := g.Backend(t, "web", "db1").Total; total != 4 {
		t.Errorf("%d connections to the backend", total)
	}

	held := g.enter(t, "127.0.2.9")
	put(denied, "127.0.2.0/25\n::ffff:127.0.1.7\n")
	put(allowed, "127.0.2.0/24\n127.0.3.4\n")
	if c := g.enter(t, "127.0.2.9"); c == nil {
		t.Error("the files count before they are reloaded")
	}
	g.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the reload", func() bool {
		c := g.enter(t, "127.0.3.4")
		return c != nil
	})
	want["127.0.2.9"], want["127.0.2.200"], want["127.0.3.3"], want["127.0.3.4"], want["127.0.1.7"] = false, true, false, true, false
	check(want)
	held.MustAsk(t) // who is in stays
	if !strings.Contains(g.Stderr(), "service web: access: the files have changed; prefixes, when merged: allowed ") {
		t.Error("the log does not say what the reload has changed")
	}

	// A line that is wrong changes nothing.
	put(denied, "127.0.2.0/25\n127.0.0.2/8\n")
	g.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the reload to be refused", func() bool { return g.Metrics(t)["poise_config_last_reload_success"] == 0 })
	if !strings.Contains(g.Stderr(), denied+":2") {
		t.Error("the log does not name the line")
	}
	check(want)
	// An empty list lets no client in; it is not the same as no list.
	put(denied, "")
	put(allowed, "")
	if res := g.Reload(t, g.yaml(fmt.Sprintf("access: {allow_files: [%s]}", allowed))); !res.OK {
		t.Fatal(res.Error)
	}
	check(map[string]bool{"127.0.0.2": false, "127.0.2.9": false})
}

// A dual-stack listener sees IPv4 clients in the clothes of IPv6; rules do not.
func TestAccessDualStack(t *testing.T) {
	t.Parallel()
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen, connectTo := rig.EveryAddr(t)
	g := &gate{listen: listen, db: db}
	g.Proc = rig.Start(t, g.yaml("access: {allow: [127.0.0.0/8], deny: [\"::ffff:127.0.0.3\"]}, limits: {per_source: 1}"))
	g.listen = connectTo
	if g.enter(t, "127.0.0.2") == nil {
		t.Error("the allowed one is refused")
	}
	if g.enter(t, "127.0.0.3") != nil {
		t.Error("the denied one is let in")
	}
	if g.enter(t, "127.0.0.2") != nil {
		t.Error("a second one of a source is let in")
	}
	if g.enter(t, "127.0.0.4") == nil {
		t.Error("another source is refused")
	}
	if c, err := net.DialTimeout("tcp", "[::1]"+listen, rig.Patience); err == nil {
		if _, err := rig.NewClient(c).Ask(); err == nil {
			t.Error("an IPv6 client is let in")
		}
		c.Close()
	} else if !rig.Exists("/proc/net/if_inet6") {
		t.Log("there is no IPv6")
	}
	g.WantLogged(t, `"client":"127.0.0.3"`, `"outcome":"refused_acl"`)
}

// So many connections at once from one source; a reload forgets none of them.
func TestPerSource(t *testing.T) {
	t.Parallel()
	g := newGate(t, "limits: {per_source: 3, mask4: 30}")
	var held []*rig.Client
	for i := range 3 {
		c := g.enter(t, fmt.Sprintf("127.0.1.%d", i)) // one source, as the mask says
		if c == nil {
			t.Fatal("refused")
		}
		held = append(held, c)
	}
	if g.enter(t, "127.0.1.3") != nil {
		t.Error("a fourth one is let in")
	}
	if c := g.enter(t, "127.0.1.4"); c == nil {
		t.Error("another source is refused")
	}
	g.WantOutcomes(t, "refused_limit", 1)
	for range 3 {
		g.MustReload(t, g.yaml("limits: {per_source: 3, mask4: 30}, timeouts: {idle: 1h}"))
		g.MustReload(t, g.yaml("limits: {per_source: 3, mask4: 30}"))
	}
	if g.enter(t, "127.0.1.3") != nil {
		t.Error("after reloads, a fourth one is let in")
	}
	g.WantOutcomes(t, "refused_limit", 2)
	held[0].Close()
	rig.Eventually(t, "room for another one", func() bool { return g.enter(t, "127.0.1.1") != nil })
	if g.enter(t, "127.0.1.3") != nil {
		t.Error("a fourth one is let in")
	}
	held[1].MustAsk(t)
	held[2].MustAsk(t)
}

// New connections a second, of the service and of each source. A rate of so little that
// nothing comes back during the test makes the burst all there is.
func TestRates(t *testing.T) {
	t.Parallel()
	g := newGate(t, "limits: {source_rate: 0.001}")
	for _, source := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		if g.enter(t, source) == nil {
			t.Errorf("the first of %s is refused", source)
		}
		for range 3 {
			if g.enter(t, source) != nil {
				t.Errorf("another one of %s is let in", source)
			}
		}
	}
	g.WantOutcomes(t, "refused_rate", 9)
	if n := g.refusals(t, "refused_rate"); n != 9 {
		t.Errorf("%v are counted as refused", n)
	}
	g.WantLogged(t, `"client":"127.0.0.3"`, `"outcome":"refused_rate"`)
	// A reload gives nothing back.
	g.MustReload(t, g.yaml("limits: {source_rate: 0.001}, timeouts: {idle: 1h}"))
	if g.enter(t, "127.0.0.2") != nil {
		t.Error("another one is let in after a reload")
	}

	g.MustReload(t, g.yaml("limits: {rate: 0.001}"))
	in := 0
	for i := range 10 {
		if g.enter(t, fmt.Sprintf("127.0.2.%d", i)) != nil {
			in++
		}
	}
	if in != 1 {
		t.Errorf("%d are let in", in)
	}
	// And one that lets all in: what was refused before has no say.
	g.MustReload(t, g.yaml("limits: {rate: 100000, source_rate: 100000}"))
	rig.Eventually(t, "the first to be let in", func() bool { return g.enter(t, "127.0.0.2") != nil })
	for range 20 {
		if g.enter(t, "127.0.0.2") == nil {
			t.Error("refused")
		}
	}
}

// A refusal is a reset, or nothing at all. The balancer keeps what that takes, and
// without it clients on this host's own network see a reset, of which it warns.
func TestLabOnRefuse(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	address := rig.ServeAt(t, l.Backend1, lab.Backend1Addr, rig.Echo)
	// Packets with no hop left do not get past a router.
	l.Client.Run(t, "nft", "add table inet lab; add chain inet lab in { type filter hook input priority 0; }; add rule inet lab in ip ttl 1 drop")
	const silence = time.Second
	without := func(c *exec.Cmd) {
		path := rig.Program(t, "setpriv")
		c.Args = append([]string{path, "--bounding-set", "-net_admin", "--", c.Path}, c.Args[1:]...)
		c.Path = path
	}
	const warning = "services.web.on_refuse: drop takes CAP_NET_ADMIN"
	for _, c := range []struct {
		how    string
		mayNot bool // the process has no CAP_NET_ADMIN
		routed bool // there is a router
	}{
		{"reset", false, true},
		{"drop", true, true},
		{"drop", false, false},
	} {
		if !c.routed {
			l.Client.Run(t, "nft", "flush", "ruleset")
		}
		var with []func(*exec.Cmd)
		if c.mayNot {
			with = append(with, without)
		}
		p := rig.StartOn(t, l, rig.WebConfig(rig.LabFront, "access: {deny: ["+lab.ClientAddr.String()+"]}, on_refuse: "+c.how, "check: {type: none}", rig.Member("db1", address)), with...)
		if keeps := rig.CapabilitiesOf(t, p)&(1<<unix.CAP_NET_ADMIN) != 0; keeps != (c.how == "drop" && !c.mayNot) {
			t.Errorf("%+v: it keeps CAP_NET_ADMIN: %v", c, keeps)
		}
		if warned := strings.Contains(strings.Join(p.Status(t).Warnings, " "), warning); warned != c.mayNot || warned != strings.Contains(p.Stderr(), warning) {
			t.Errorf("%+v: status warns: %v, %q", c, warned, p.Stderr())
		}
		conn, err := l.Client.Dial(lab.ClientAddr, rig.LabFront, rig.Patience)
		r := rig.Reading{Err: err} // it may be reset before connect has returned
		if err == nil {
			defer conn.Close()
			limit := silence
			if c.how == "reset" {
				limit = rig.Patience
			}
			if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
				t.Fatal(err)
			}
			r = rig.ReadToEnd(conn)
		}
		if r.Got != "" || c.how == "drop" && !rig.IsTimeout(r.Err) || c.how == "reset" && !r.Reset() {
			t.Errorf("%+v: %q, %v", c, r.Got, r.Err)
		}
		p.WantOutcomes(t, "refused_acl", 1)
		other, err := l.Client.Dial(lab.ProxyAddr, rig.LabFront, rig.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := io.WriteString(other, "ping"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(other, make([]byte, 4)); err != nil {
			t.Errorf("another client: %v", err)
		}
		other.Close()
		p.Stop(t)
	}
}
