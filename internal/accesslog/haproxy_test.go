package accesslog

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
)

// haproxyTCP takes a line apart as the published patterns for HAProxy's TCP log do
// (grok's HAPROXYTCP and its kind): whole numbers, two letters, a month of three.
var haproxyTCP = func() *regexp.Regexp {
	const (
		integer = `[+-]?[0-9]+`
		octet   = `(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})`
		ip      = `(?:` + octet + `(?:\.` + octet + `){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]*(?:` + octet + `(?:\.` + octet + `){3})?(?:%\S+)?)`
		month   = `(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`
		date    = `(?:0[1-9]|[12][0-9]|3[01])/` + month + `/[0-9]{4}:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}`
	)
	return regexp.MustCompile(`^(?P<client>` + ip + `):(?P<port>[0-9]+) \[(?P<accepted>` + date + `)\] ` +
		`(?P<frontend>[^ /]+) (?P<backend>[^ /]+)/(?P<server>\S+) ` +
		`(?P<tw>` + integer + `)/(?P<tc>` + integer + `)/(?P<tt>` + integer + `) (?P<bytes>[0-9]+) ` +
		`(?P<state>[CSPLRIDUKcs-][RQCHDLT-]) ` +
		`(?P<act>[0-9]+)/(?P<fe>[0-9]+)/(?P<be>[0-9]+)/(?P<srv>[0-9]+)/(?P<retries>\+?[0-9]+) (?P<sq>[0-9]+)/(?P<bq>[0-9]+)\n$`)
}()

func taken(t *testing.T, s *l4.Session) map[string]string {
	t.Helper()
	line := string(appendTCPLog(nil, s))
	m := haproxyTCP.FindStringSubmatch(line)
	if m == nil {
		t.Errorf("is no line of HAProxy's: %s", line)
		return nil
	}
	fields := map[string]string{}
	for i, name := range haproxyTCP.SubexpNames() {
		fields[name] = m[i]
	}
	return fields
}

// TestTCPLogIsHAProxys: lines of every outcome, by every side, in every phase, of both
// protocols and families match, and nothing in them is a field of ours.
func TestTCPLogIsHAProxys(t *testing.T) {
	for o := range l4.Outcome(l4.NumOutcomes) {
		for by := l4.Nobody; by <= l4.Proxy; by++ {
			for phase := range 4 {
				for _, client := range []string{"192.0.2.7:51234", "[2001:db8::7]:443", "[fe80::1%eth0]:9", "[::]:1"} {
					for _, proto := range []l4.Proto{l4.TCP, l4.UDP} {
						s := session(1)
						s.Flow.Proto, s.Flow.Client = proto, netip.MustParseAddrPort(client)
						s.Outcome, s.By, s.DatagramsIn = o, by, 7
						switch phase {
						case 0: // turned away
							s.Pool, s.Backend = "", ""
							s.Wait, s.Connect, s.FirstByte, s.BytesOut = l4.Unreached, l4.Unreached, l4.Unreached, 0
						case 1:
							s.Backend, s.QueuePos = "", 3
							s.Wait, s.Connect, s.FirstByte = l4.Unreached, l4.Unreached, l4.Unreached
						case 2:
							s.Backend, s.Retries = "", 2
							s.Connect, s.FirstByte = l4.Unreached, l4.Unreached
						}
						if f := taken(t, s); f != nil && strings.ContainsAny(f["state"], "/_") {
							t.Errorf("%v", f)
						}
					}
				}
			}
		}
	}
}

// TestTCPLogFields: what the pattern finds in a line is what HAProxy's manual says of
// the field.
func TestTCPLogFields(t *testing.T) {
	expect := func(s *l4.Session, want map[string]string) {
		t.Helper()
		got := taken(t, s)
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s is %q, want %q", name, got[name], text)
			}
		}
	}
	s := session(1)
	s.Wait, s.Connect, s.Total = 1999*time.Microsecond, 310*time.Microsecond, 5007118*time.Microsecond
	s.Retries, s.QueuePos = 1, 4
	expect(s, map[string]string{
		"client": "192.0.2.7", "port": "51234", "accepted": "06/Feb/2009:12:14:14.655", "frontend": "postgres", "backend": "pg", "server": "db1",
		"tw": "1", "tc": "0", "tt": "5007", "bytes": "212", "state": "--", "act": "3", "fe": "2", "be": "2", "srv": "1", "retries": "+1", "sq": "0", "bq": "4",
	})
	s = session(1)
	s.Pool, s.Backend, s.Outcome, s.By = "", "", l4.RefusedACL, l4.Proxy
	s.Wait, s.Connect, s.Total = l4.Unreached, l4.Unreached, time.Millisecond
	expect(s, map[string]string{"frontend": "postgres", "backend": "postgres", "server": "<NOSRV>", "tw": "-1", "tc": "-1", "tt": "1", "state": "PR", "retries": "0"})
}
