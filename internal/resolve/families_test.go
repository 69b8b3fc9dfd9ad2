package resolve

import (
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Case O-45: whatever a server says of one family of addresses, those of the other
// that it has given are used; of a host as of the target of an SRV record.
func TestFamilies(t *testing.T) {
	const host = "db.internal."
	good := map[uint16]script{
		dns.TypeA:    says(host + " 30 A 10.0.0.1"),
		dns.TypeAAAA: says(host + " 30 AAAA 2001:db8::1"),
	}
	want := map[uint16][]Member{dns.TypeA: members("10.0.0.1"), dns.TypeAAAA: members("2001:db8::1")}
	for what, bad := range map[string]script{
		"NXDOMAIN": fails(dns.RcodeNameError),
		"silence":  silent,
		"SERVFAIL": fails(dns.RcodeServerFailure),
		"REFUSED":  fails(dns.RcodeRefused),
		"an alias of nothing": func(_ string, q *dns.Msg) *dns.Msg {
			m := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
			rr, _ := dns.NewRR(host + " 30 CNAME gone.internal.")
			m.Answer = []dns.RR{rr}
			return m
		},
		"an alias of something else": says(host+" 30 CNAME other.internal.", "other.internal. 30 TXT x"),
		"no records":                 empty,
	} {
		for family := range good {
			t.Run(what+", not for "+dns.TypeToString[family], func(t *testing.T) {
				t.Parallel()
				s := newServer(t, "127.0.0.1:0", func(network string, q *dns.Msg) *dns.Msg {
					switch q.Question[0].Qtype {
					case dns.TypeSRV:
						return says("_pg._tcp.internal. 30 SRV 0 1 5432 "+host)(network, q)
					case family:
						return good[family](network, q)
					}
					return bad(network, q)
				})
				for kind, name := range map[Kind]string{Host: "db.internal", SRV: "_pg._tcp.internal"} {
					var r record
					r.observe(time.Now(), lookup(t, kind, name, s), limits)
					got := slices.Clone(r.Members)
					for i := range got {
						got[i] = Member{Addr: got[i].Addr}
					}
					if !slices.Equal(got, want[family]) || r.State != Resolved {
						t.Errorf("%s: %s", kind, r.show())
					}
				}
			})
		}
	}
}
