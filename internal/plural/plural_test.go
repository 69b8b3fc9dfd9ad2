package plural_test

import (
	"testing"

	"github.com/poise-lb/poise/internal/plural"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		n          int
		noun, want string
	}{
		{0, "backend", "0 backends"},
		{1, "backend", "1 backend"},
		{2, "backend", "2 backends"},
		{1, "retry", "1 retry"},
		{3, "retry", "3 retries"},
		{2, "day", "2 days"},
		{2, "address", "2 addresses"},
		{2, "batch", "2 batches"},
		{-1, "second", "-1 seconds"},
	} {
		if got := plural.Of(c.n, c.noun); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if plural.Are(1)+plural.Are(0)+plural.Were(1)+plural.Were(2) != "isarewaswere" {
		t.Error("the verbs do not agree")
	}
}
