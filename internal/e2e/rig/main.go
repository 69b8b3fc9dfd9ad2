// Package rig is what the end-to-end tests stand on: the real binary as a child process,
// clients, backends, certificates and servers around it, and waiting for what has to come.
// It is for tests; nothing else imports it.
package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience is for what happens at once unless the machine is very busy. It is
// how long a test waits before it fails, never what a test measures.
const Patience = 20 * time.Second

// Scratch holds the binary under test.
var Scratch string

// ExitFailure is the binary's exit code when it could not do what it was asked to.
const ExitFailure = 1

// Main is the body of every TestMain: it runs the tests and fails if they leave goroutines behind.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if Scratch, err = os.MkdirTemp("", "poise-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(Scratch)
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
	binary := filepath.Join(Scratch, "poise")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=v0.0.0-test", "-o", binary, "github.com/poise-lb/poise/cmd/poise")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// CLI runs the binary with the arguments to its end.
func CLI(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path := Binary(t) // which may take its time to build
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Eventually waits for cond and fails the test if it stays false.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// Unavailable ends a test that cannot run here.
func Unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("POISE_TEST_ALL") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
