package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestRetryBudgetHasAnEffect: a budget that a pool gives is refused where none of its
// services tries another backend, and nowhere else.
func TestRetryBudgetHasAnEffect(t *testing.T) {
	t.Parallel()
	const (
		tcpNever, tcpAgain   = "a: {listen: [\":70\"], pool: p, retries: 0}", "b: {listen: [\":71\"], pool: p}"
		udpPlain, udpReplies = "c: {listen: [\":72\"], protocol: udp, pool: p}", "d: {listen: [\":73\"], protocol: udp, pool: p, udp: {replies: 1}}"
		udpOff               = "e: {listen: [\":74\"], protocol: udp, pool: p, udp: {replies: 1, retry: false}}"
		udpSpray             = "f: {listen: [\":75\"], protocol: udp, pool: p, udp: {spray: true}}"
		never                = "service a uses the pool with retries: 0"
		without              = " with protocol: udp uses the pool without udp.retry"
	)
	for _, c := range []struct{ services, want string }{
		{"", ""},
		{tcpNever, never},
		{tcpAgain, ""},
		{tcpNever + ", " + tcpAgain, ""},
		{udpPlain, "service c" + without},
		{udpReplies, ""},
		{udpOff, "service e" + without},
		{udpSpray, "service f" + without},
		{udpOff + ", " + udpReplies, ""},
		{tcpNever + ", " + udpOff, never},
		{tcpNever + ", " + udpReplies, ""},
		{tcpAgain + ", " + udpOff, ""},
	} {
		for _, budget := range []string{"", "retry_budget: {percent: 10}", "retry_budget: {floor: 3}"} {
			text := fmt.Sprintf("services: {%s}\npools: {p: {backends: [10.0.0.1:53], check: {type: none}, %s}}\n", c.services, budget)
			_, err := Parse("x.yaml", []byte(text))
			switch {
			case c.want == "" || budget == "":
				if err != nil {
					t.Errorf("%s%v", text, err)
				}
			case err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), c.want):
				t.Errorf("%sgot %v, want %s", text, err, c.want)
			}
		}
	}
}

// What is inherited was written for many, and spray sends nothing again: replies that a
// service has from defaults are no retry there.
func TestSprayDoesNotRetry(t *testing.T) {
	t.Parallel()
	f, err := Parse("x.yaml", []byte(`defaults: {services: {udp: {replies: 1}}}
services: {a: {listen: [":75"], protocol: udp, pool: p, udp: {spray: true}}}
pools: {p: {backends: ["10.0.0.1:53"], check: {type: none}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if f.Services[0].UDP.Retry {
		t.Error("a service with spray retries")
	}
}
