package resolve

import (
	"syscall"
	"time"

	"github.com/poise-lb/poise/l4/disk"
)

// fingerprint tells one state of a file from another without reading it. It is
// of what a path leads to, so a symbolic link that is swapped changes it.
type fingerprint struct {
	dev, ino  uint64
	size      int64
	mod, meta int64 // mtime and ctime in ns; ctime cannot be set back
}

func stat(path string) (fingerprint, error) {
	info, err := disk.Stat(path)
	if err != nil {
		return fingerprint{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
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

// MaxFile bounds what is read, some 100 000 backends.
const MaxFile = 4 << 20

func readFile(path string) ([]byte, error) {
	data, _, err := disk.Read(path, MaxFile)
	return data, err
}
