package main

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

const transparentScript = "../../scripts/transparent.sh"

// printedRules is what the script prints.
func printedRules(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, transparentScript, append([]string{"print"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// `poise check --explain` and the script agree to the letter.
func TestTransparentRules(t *testing.T) {
	for _, backends := range [][]string{
		nil,
		{"10.0.0.11"},
		{"10.0.0.11", "10.0.0.0/24"},
		{"2001:db8::1", "2001:db8:1::/48"},
		{"10.0.0.11", "2001:db8::1", "10.0.0.12"},
	} {
		var prefixes []netip.Prefix
		for _, b := range backends {
			if a, err := netip.ParseAddr(b); err == nil {
				prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
			} else {
				prefixes = append(prefixes, netip.MustParsePrefix(b))
			}
		}
		var args []string
		if backends != nil {
			args = append([]string{"--backends"}, backends...)
		}
		if got, want := transparentRules(prefixes), printedRules(t, args...); got != want {
			t.Errorf("%v: poise says\n%s\nand the script\n%s", backends, got, want)
		}
	}
}

func TestTransparentUsage(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"sideways"},
		{"print", "--mark", "0"},
		{"print", "--mark", "0x1ffffffff"},
		{"print", "--mark", "one"},
		{"print", "--mark"},
		{"print", "--table", "254"},
		{"print", "--table", "main"},
		{"print", "--backends"},
		{"print", "--backends", "--mark", "1"},
		{"print", "--backends", "db1.example.org"},
		{"print", "--backends", "10.0.0.1; reboot"},
		{"print", "10.0.0.1"},
	} {
		out, err := exec.Command(transparentScript, args...).Output()
		exit, failed := errors.AsType[*exec.ExitError](err)
		if !failed || exit.ExitCode() != 2 || len(out) > 0 {
			t.Errorf("%q: %v, %q; want exit code 2", args, err, out)
		}
	}
}
