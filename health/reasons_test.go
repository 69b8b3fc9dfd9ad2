package health

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// A record names what its prober fails with: a reason that is missing there would have no
// series until it first occurs.
func TestReasonsOfChecks(t *testing.T) {
	word := regexp.MustCompile(`(?:failf\(|&Failure\{)([A-Z0-9]+)\b`)
	for _, c := range Checks {
		if c.New == nil {
			continue
		}
		source, err := os.ReadFile("probe_" + c.Word + ".go")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range word.FindAllSubmatch(source, -1) {
			r := Reason(m[1])
			if r == L6RSP && c.TLS != nil {
				continue
			}
			if !slices.Contains(c.Fails, r) {
				t.Errorf("%s can fail with %s, which its record does not name", c.Word, r)
			}
		}
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want []Reason
	}{
		{Spec{Type: "none"}, []Reason{}},
		{Spec{Type: "tcp"}, []Reason{L4CON, L4TOUT}},
		{Spec{Type: "tls"}, []Reason{L4CON, L4TOUT, L6RSP, L6TOUT}},
		{Spec{Type: "smtp", SMTP: SMTP{StartTLS: true}}, []Reason{L4CON, L4TOUT, L6RSP, L6TOUT, L7RSP, L7STS, L7TOUT}},
		{Spec{Type: "exec"}, []Reason{PROC}},
		{Spec{Type: AllOf, All: []Spec{{Type: "exec"}, {Type: "dns"}}}, []Reason{L4CON, L4TOUT, L7RSP, L7STS, L7TOUT, PROC, DNS}},
	} {
		if got := c.spec.Reasons(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.spec.Type, got, c.want)
		}
	}
	for _, c := range Checks { // none has written over what another has appended
		lags := c.Word == "postgres" || c.Word == "mysql" || c.Word == "redis"
		if slices.Contains(c.Fails, LAG) != lags || slices.Contains(c.Fails, DNS) != (c.Word == "dns") {
			t.Errorf("%s: %v", c.Word, c.Fails)
		}
	}
}
