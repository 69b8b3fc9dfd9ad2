package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/internal/loadgen"
)

// patience is for what happens at once unless the machine is very busy. It is
// how long a test waits before it fails, never what a test measures.
const patience = 20 * time.Second

// scratch holds the binary under test.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "poise-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// build builds the binary as it is shipped, once.
var build = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(scratch, "poise")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=v0.0.0-test", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

func binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// cli runs the binary with the arguments to its end.
func cli(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path := binary(t) // which may take its time to build
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// addr returns an address of loopback that is reserved for the test: nobody
// listens there, and no client is given its port.
func addr(t testing.TB) string {
	t.Helper()
	r, err := loadgen.Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r.Addr().String()
}

// backend starts a demonstration backend for the length of the test.
func backend(t testing.TB, name string, how loadgen.Behaviour) *loadgen.Backend {
	t.Helper()
	b, err := loadgen.NewBackend(name, "", how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// eventually waits for cond and fails the test if it stays false.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// oneService is a configuration of one service, web, over one pool, web.
func oneService(listen, balance string, backends ...*loadgen.Backend) string {
	return fmt.Sprintf("services:\n  web: {listen: [%q], pool: web}\npools:\n%s", listen, onePool("web", balance, "", backends...))
}

// onePool is a pool of backends by their names; more is further keys, each on a
// line of its own after four spaces.
func onePool(name, balance, more string, backends ...*loadgen.Backend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:\n    balance: %s\n%s    backends:\n", name, balance, more)
	for _, be := range backends {
		fmt.Fprintf(&b, "      - {name: %s, address: %q}\n", be.Name(), be.Addr())
	}
	return b.String()
}
