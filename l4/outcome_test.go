package l4_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// The words are log fields and metric labels: complete, distinct, and spelt like
// labels.
func TestNames(t *testing.T) {
	for list, names := range map[string][]string{
		"Outcome":       namesOf[l4.Outcome](l4.NumOutcomes),
		"ConnectReason": namesOf[l4.ConnectReason](l4.NumConnectReasons),
	} {
		seen := map[string]bool{}
		for i, name := range names {
			if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name) || name == "unknown" {
				t.Errorf("%s %d: name %q", list, i, name)
			}
			if seen[name] {
				t.Errorf("%s %d: %q is taken", list, i, name)
			}
			seen[name] = true
		}
	}
	if got := l4.Outcome(l4.NumOutcomes).String() + l4.ConnectReason(l4.NumConnectReasons).String(); got != "unknownunknown" {
		t.Errorf("beyond the lists: %q", got)
	}
}

func namesOf[T interface {
	~uint8
	fmt.Stringer
}](n int) (names []string) {
	for i := range n {
		names = append(names, T(i).String())
	}
	return names
}

// The order of the names must follow the order of the constants.
func TestNamesMatchConstants(t *testing.T) {
	for value, want := range map[fmt.Stringer]string{
		l4.OK: "ok", l4.ClientReset: "client_reset", l4.BackendReset: "backend_reset", l4.Idle: "idle",
		l4.HalfCloseTimeout: "half_close_timeout", l4.NoBackend: "no_backend", l4.ConnectFailed: "connect_failed",
		l4.ConnectTimeout: "connect_timeout", l4.RefusedLimit: "refused_limit", l4.BackendDown: "backend_down",
		l4.Drained: "drained", l4.Killed: "killed", l4.NoLocalPort: "no_local_port", l4.NoDescriptors: "no_descriptors",
		l4.QueueTimeout: "queue_timeout", l4.QueueFull: "queue_full",
		l4.RefusedACL: "refused_acl", l4.RefusedRate: "refused_rate", l4.BadProxyHeader: "bad_proxy_header",
		l4.BadTLSHello: "bad_tls_hello", l4.FirstBytesTimeout: "first_bytes_timeout", l4.TLSFailed: "tls_failed",
		l4.ConnectOK: "ok", l4.ConnectRefused: "refused", l4.ConnectUnreachable: "unreachable",
		l4.ConnectTimedOut:    "timeout",
		l4.ConnectNoLocalPort: "no_local_port", l4.ConnectNoDescriptors: "no_descriptors", l4.ConnectTLS: "tls",
	} {
		if value.String() != want {
			t.Errorf("got %q, want %q", value, want)
		}
	}
}

func TestConnectReasonLocal(t *testing.T) {
	for i := range l4.NumConnectReasons {
		r := l4.ConnectReason(i)
		want := r == l4.ConnectNoLocalPort || r == l4.ConnectNoDescriptors
		if r.Local() != want {
			t.Errorf("%v: Local is %v", r, r.Local())
		}
	}
}

// Refused are all that the client is turned away by, and nothing that a backend or
// an operator did to it.
func TestRefused(t *testing.T) {
	for o := range l4.Outcome(l4.NumOutcomes) {
		switch o {
		case l4.OK, l4.ClientReset, l4.BackendReset, l4.Idle, l4.HalfCloseTimeout, l4.ConnectFailed, l4.ConnectTimeout,
			l4.BackendDown, l4.Drained, l4.Killed:
			if o.Refused() {
				t.Errorf("%v is no refusal", o)
			}
		default:
			if !o.Refused() {
				t.Errorf("%v is a refusal", o)
			}
		}
	}
}
