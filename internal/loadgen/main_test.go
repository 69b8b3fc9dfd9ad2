package loadgen

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startBackend(t *testing.T, name string, how Behaviour) *Backend {
	t.Helper()
	b, err := NewBackend(name, "", how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// runLoad runs o against addr with the defaults of a test.
func runLoad(t *testing.T, addr string, o Options) Result {
	t.Helper()
	o.Addr = addr
	if o.Clients == 0 {
		o.Clients = 4
	}
	if o.Size == 0 {
		o.Size = 64
	}
	if o.Timeout == 0 {
		o.Timeout = 20 * time.Second
	}
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
