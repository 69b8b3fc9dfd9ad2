package resolve

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// fingerprint tells one state of a file from another without reading it. It is
// of what a path leads to, so a symbolic link that is swapped changes it.
type fingerprint struct {
	dev, ino  uint64
	size      int64
	mod, meta int64 // mtime and ctime in ns; ctime cannot be set back
}

func stat(path string) (fingerprint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fingerprint{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return fingerprint{}, fmt.Errorf("%s is not a regular file", path)
	}
	return fingerprint{
		uint64(st.Dev), st.Ino, st.Size, //nolint:unconvert // of another type on some architectures
		time.Unix(st.Mtim.Unix()).UnixNano(), time.Unix(st.Ctim.Unix()).UnixNano(),
	}, nil
}

// young is for how long after a change another one may leave no trace in the
// fingerprint: file times move with the kernel's clock tick, on some network
// file systems with the second.
const young = 2 * time.Second

// settled returns a fingerprint that will do for comparing with the file as it is
// later: none at all if the file was changed just before now, when it was read.
func (f fingerprint) settled(now time.Time) fingerprint {
	if now.UnixNano()-max(f.mod, f.meta) < int64(young) {
		return fingerprint{}
	}
	return f
}

// maxFile bounds what is read, some 100 000 backends.
const maxFile = 4 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return data, err
}
