package reload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/e2e/rig"
)

// Case O-45: a name server that answers for one family of addresses and not for the
// other, in each of the ways there are, serves a pool from the start and for as long
// as it goes on.
func TestDNSOneFamily(t *testing.T) {
	t.Parallel()
	_, _, port := twins(t)
	ns := newNameServer(t, "127.0.0.1:0")
	bad := map[string]func(q *dns.Msg) *dns.Msg{
		"nxdomain.test.": fails(dns.RcodeNameError),
		"silent.test.":   func(*dns.Msg) *dns.Msg { return nil },
		"servfail.test.": fails(dns.RcodeServerFailure),
		"refused.test.":  fails(dns.RcodeRefused),
		"alias.test.": func(q *dns.Msg) *dns.Msg {
			m := new(dns.Msg).SetReply(q)
			m.Answer = []dns.RR{&dns.CNAME{
				Hdr:    dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 1},
				Target: "nowhere.test.",
			}}
			return m
		},
	}
	answer := func(of map[string]func(q *dns.Msg) *dns.Msg) {
		ns.answers(func(q *dns.Msg) *dns.Msg {
			if f := of[q.Question[0].Name]; f != nil && q.Question[0].Qtype == dns.TypeAAAA {
				return f(q)
			}
			return says("127.0.0.11")(q)
		})
	}
	answer(bad)
	listens := map[string]string{}
	var services, pools strings.Builder
	for host := range bad {
		name, _, _ := strings.Cut(host, ".")
		listens[name] = rig.Addr(t)
		fmt.Fprintf(&services, "  %s: {listen: [%q], pool: %s}\n", name, listens[name], name)
		fmt.Fprintf(&pools, "  %s: {resolve: {servers: [%q], hold: 1s}, backends: [{address: \"%s.test:%s\"}]}\n", name, ns.addr, name, port)
	}
	p := rig.Start(t, "services:\n"+services.String()+"pools:\n"+pools.String())
	sources := func() map[string]admin.Source {
		found := map[string]admin.Source{}
		for _, pl := range p.Status(t).Pools {
			found[pl.Name] = pl.Sources[0]
		}
		return found
	}
	serves := func(when string) {
		t.Helper()
		for name, listen := range listens {
			rig.Eventually(t, name+" to serve "+when, func() bool {
				who, err := rig.Ask(listen)
				return err == nil && who == "db11"
			})
		}
	}
	serves("from the start")

	// All well for a while, then the trouble begins: for longer than the hold time.
	answer(nil)
	rig.Eventually(t, "every name to be well", func() bool {
		for _, s := range sources() {
			if s.Reason != "" {
				return false
			}
		}
		return true
	})
	answer(bad)
	began := time.Now()
	rig.Eventually(t, "two hold times to pass", func() bool {
		for name, s := range sources() {
			if s.State != "resolved" || s.Backends != 1 {
				t.Fatalf("%s: %+v", name, s)
			}
		}
		return time.Since(began) > 2*time.Second
	})
	serves("with the trouble that came later")
	if log := p.Stderr(); strings.Contains(log, "backend is removed") || strings.Count(log, "name is resolved") != len(bad) {
		t.Error("names were not left alone, or not told of once each")
	}
}

// A name that does not resolve when it is first looked up is told, by the log of a
// start, of a reload, and by `poise check`.
func TestDNSFromTheStart(t *testing.T) {
	t.Parallel()
	_, _, port := twins(t)
	ns := newNameServer(t, "127.0.0.1:0")
	ns.answers(func(q *dns.Msg) *dns.Msg {
		if strings.HasPrefix(q.Question[0].Name, "mute") {
			return nil
		}
		return fails(dns.RcodeNameError)(q)
	})
	yaml := func(names ...string) string {
		backends := ""
		for _, n := range names {
			backends += fmt.Sprintf("{address: \"%s:%s\"}, ", n, port)
		}
		return fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n  web: {resolve: {servers: [%q]}, backends: [%s]}\n", rig.Addr(t), ns.addr, backends)
	}
	p := rig.Start(t, yaml("typo.test", "mute.test"))
	told := func(name, why string) {
		t.Helper()
		rig.Eventually(t, "the log to tell of "+name, func() bool {
			for line := range strings.Lines(p.Stderr()) {
				if strings.Contains(line, "level=WARN") && strings.Contains(line, "name="+name) && strings.Contains(line, why) {
					return true
				}
			}
			return false
		})
	}
	told("typo.test", "NXDOMAIN")
	told("mute.test", "no answer within 1s")
	p.MustReload(t, yaml("typo.test", "mute.test", "added.test"))
	told("added.test", "NXDOMAIN")
	if n := strings.Count(p.Stderr(), "name=typo.test"); n != 1 {
		t.Errorf("the log tells of typo.test %d times", n)
	}

	_, stderr, code := rig.CLI(t, "check", "-c", p.Config())
	for _, want := range []string{
		"warning: pools.web.backends: typo.test:" + port + " has no address now: A typo.test: NXDOMAIN",
		"warning: pools.web.backends: mute.test:" + port + " has no address now: A mute.test: no answer within 1s",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("check does not say %q:\n%s", want, stderr)
		}
	}
	if code != 0 {
		t.Errorf("check ends with %d", code)
	}
}
