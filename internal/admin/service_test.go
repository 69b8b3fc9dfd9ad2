package admin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a service shows below its row: endings without refusals, which are told
// apart, and what its protocol has besides.
func TestServiceNotes(t *testing.T) {
	for name, c := range map[string]struct {
		service Service
		want    []string
	}{
		"nothing yet": {Service{Outcomes: map[string]uint64{"ok": 0}}, nil},
		"only refused": {
			Service{Outcomes: map[string]uint64{"refused_rate": 3}, Refused: map[string]uint64{"refused_rate": 3}},
			[]string{"refused: refused_rate 3"},
		},
		"both": {
			Service{
				Outcomes: map[string]uint64{"ok": 5, "refused_acl": 7, "bad_proxy_header": 12_345},
				Refused:  map[string]uint64{"refused_acl": 7, "bad_proxy_header": 12_345},
			},
			[]string{"ended: ok 5", "refused: bad_proxy_header 12.3k, refused_acl 7"},
		},
		"TLS, none yet": {Service{TLS: &ServiceTLS{}}, []string{"TLS: 0 handshakes"}},
		"TLS":           {Service{TLS: &ServiceTLS{Handshakes: 8, Resumed: 6, Active: 2}}, []string{"TLS: 8 handshakes, 75.0 % resumed, 2 under way"}},
		"UDP, no rates": {Service{UDP: &ServiceUDP{DatagramsIn: 3}}, []string{"datagrams: in 3, out 0"}},
		"UDP": {
			Service{UDP: &ServiceUDP{DatagramsIn: 3, DatagramsOut: 4, Rates: &DatagramRates{0.5, 1200}, Dropped: map[string]uint64{"a": 1, "b": 2, "c": 0}}},
			[]string{"datagrams: in 3 (0.5/s), out 4 (1200/s)", "dropped: b 2, a 1"},
		},
	} {
		if d := cmp.Diff(c.want, c.service.notes()); d != "" {
			t.Error(name, "(-want +got):", d)
		}
	}
}

// Certificates are listed with the first to expire first, and stand out when it is
// near.
func TestCertificates(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	const day = 24 * time.Hour
	s := Status{Now: now}
	for i, left := range []time.Duration{14 * day, 14*day - 1, day, 90 * time.Minute, 0, -day, -90 * time.Second} {
		s.Services = append(s.Services, Service{Name: fmt.Sprint("s", i), TLS: &ServiceTLS{
			Certificates: []Certificate{{Path: "/a.pem", Expires: now.Add(left)}},
		}})
	}
	s.Services = append(s.Services, Service{Name: "plain"}, Service{Name: "s1", TLS: &ServiceTLS{
		Certificates: []Certificate{{Path: "/0.pem", Expires: now.Add(14*day - 1)}},
	}})
	var got []string
	for _, c := range s.certificates() {
		got = append(got, strings.TrimSuffix(fmt.Sprintf("%s %s %s: %s", c.Service, c.Path, c.Left, c.Tone), ": "))
	}
	want := []string{
		"s5 /a.pem expired 1 day ago: bad", "s6 /a.pem expired 1m 30s ago: bad", "s4 /a.pem expired 0s ago: bad",
		"s3 /a.pem in 1h 30m: warn", "s2 /a.pem in 1 day: warn", "s1 /0.pem in 13 days: warn", "s1 /a.pem in 13 days: warn", "s0 /a.pem in 14 days",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("(-want +got):", d)
	}
}

// On a terminal many certificates are not all listed, and those that are left out
// are not the ones that expire first.
func TestManyCertificates(t *testing.T) {
	s := sample()
	list := make([]Certificate, 30)
	for i := range list {
		list[i] = Certificate{Path: fmt.Sprintf("/%02d.pem", i), Expires: s.Now.Add(time.Duration(100-i) * 24 * time.Hour)}
	}
	s.Services[0].TLS.Certificates = list
	var out bytes.Buffer
	if err := StatusTable(&out, s); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "and 10 that expire later") || !strings.Contains(text, "/29.pem") ||
		!strings.Contains(text, "/10.pem") || strings.Contains(text, "/09.pem") {
		t.Error(text)
	}
	if html := render(t, "/", s); !strings.Contains(html, "/09.pem") {
		t.Error("the page does not list all of them")
	}
}
