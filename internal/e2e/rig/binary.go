package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ExitFailure is the binary's exit code when it could not do what it was asked to.
const ExitFailure = 1

// build returns the path of the binary under test: the one that the Makefile has built
// for all parts and names in POISE_TEST_BINARY, or one that this process builds, as it
// is shipped.
var build = sync.OnceValues(func() (string, error) {
	if err := noteSources(); err != nil {
		return "", err
	}
	if path := os.Getenv("POISE_TEST_BINARY"); path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	binary := filepath.Join(Scratch, "poise")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=v0.0.0-test", "-o", binary, "github.com/poise-lb/poise/cmd/poise")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// noteSources looks at the module's folders. The go command notes what a test opens,
// and takes a result from its cache only if all that is as it was. Without this it would
// not know that a test depends on the sources of the binary, which it does not import.
func noteSources() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == root {
			return err
		}
		if name := d.Name(); strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" {
			return fs.SkipDir
		}
		return nil
	})
}

// moduleRoot is the folder of go.mod: a test runs in the folder of its package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = up
	}
}

// Binary returns the path of the binary under test.
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
