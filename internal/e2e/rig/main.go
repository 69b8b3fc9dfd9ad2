// Package rig is what the end-to-end tests stand on: the real binary as a child process,
// clients, backends, certificates and servers around it, and waiting for what has to come.
// It is for tests; nothing else imports it.
package rig

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience is for what happens at once unless the machine is very busy. It is
// how long a test waits before it fails, never what a test measures.
const Patience = 20 * time.Second

// Scratch is a folder of this test process, with a path short enough for the sockets
// in it.
var Scratch string

// Main is the body of every TestMain. It runs the tests and fails if they leave
// goroutines behind.
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
