package resolve

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually waits for what happens soon: 20 s and more, counted in looks, so that
// a machine that stands still for a while does not use them up.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 4000 {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited for %s in vain", what)
}
