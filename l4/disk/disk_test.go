package disk_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/l4/disk"
)

// TestRead: case O-48. Whatever is at the path, there is an answer at once.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("plain"), []byte("text"), 0o600))
	must(os.Symlink("plain", at("link")))
	must(syscall.Mkfifo(at("pipe"), 0o600))
	must(os.Symlink("pipe", at("link-to-pipe")))
	must(os.Mkdir(at("folder"), 0o700))
	must(os.WriteFile(at("full"), bytes.Repeat([]byte("x"), 1<<20), 0o600))
	must(os.WriteFile(at("over"), bytes.Repeat([]byte("x"), 1<<20+1), 0o600))
	must(os.WriteFile(at("sparse"), nil, 0o600))
	must(os.Truncate(at("sparse"), 5<<30))
	must(os.Symlink("round", at("round")))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	defer l.Close()

	for _, tt := range []struct {
		path, want string // the error; "" is none
		is         error
	}{
		{path: at("plain")},
		{path: at("link")},
		{path: at("full")},
		{path: "/proc/self/status"}, // its size is 0, it says
		{path: at("pipe"), want: "read PATH: is a named pipe, and must be a regular file"},
		{path: at("link-to-pipe"), want: "read PATH: is a named pipe, and must be a regular file"},
		{path: at("socket"), want: "read PATH: is a socket, and must be a regular file"},
		{path: "/dev/zero", want: "read PATH: is a device, and must be a regular file"},
		{path: "/dev/null", want: "read PATH: is a device, and must be a regular file"},
		{path: at("folder"), want: "read PATH: is a directory, and must be a regular file", is: syscall.EISDIR},
		{path: at("over"), want: "read PATH: is larger than 1 MiB", is: disk.ErrLarge},
		{path: at("sparse"), want: "read PATH: is larger than 1 MiB", is: disk.ErrLarge},
		{path: at("none"), want: "open PATH: no such file or directory", is: fs.ErrNotExist},
		{path: at("round"), want: "open PATH: too many levels of symbolic links"},
		{path: at("plain") + "/x", want: "open PATH: not a directory"},
	} {
		begin := time.Now()
		data, info, err := disk.Read(tt.path, 1<<20)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: %s", tt.path, took)
		}
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), tt.path, "PATH")
		}
		if got != tt.want || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: got %q, want %q", tt.path, got, tt.want)
		}
		if err == nil && (info == nil || len(data) == 0) {
			t.Errorf("%s: %d bytes, %v", tt.path, len(data), info)
		}
		if bare := disk.Bare(err); err != nil && strings.Contains(bare.Error(), tt.path) {
			t.Errorf("bare: %v", bare)
		}
	}
}

// TestReadThatWaits: some files of /proc call themselves regular and wait for news.
func TestReadThatWaits(t *testing.T) {
	const kmsg = "/proc/kmsg"
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 { // the first may find something to read
			if _, _, err := disk.Read(kmsg, 4<<20); err != nil {
				return
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("hangs")
	}
}
