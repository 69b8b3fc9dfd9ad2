package resolve

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Case O-48: what the host says is not waited for either.
func TestSystemFilesThatAreNone(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		s := newSystem(path, path)
		if servers, err := s.servers(); err == nil {
			t.Errorf("%s: name servers %v", path, servers)
		}
		if a := s.hosts("localhost"); a != nil {
			t.Errorf("%s: %v", path, a)
		}
	}
}
