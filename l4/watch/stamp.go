// Package watch follows files: whether what is at a path has changed since it was read,
// and when to look again. It does not care what is in them.
package watch

import (
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/poise-lb/poise/l4/disk"
)

// ID tells a file that was written to from one that was replaced.
type ID struct{ dev, ino uint64 }

// Stamp tells one state of what a path leads to from another without reading it.
type Stamp struct {
	ID          ID
	size        int64
	mtime       int64
	ctime       int64  // tools that copy files also copy the mtime, none can set this one
	unavailable string // a file that cannot be read has a stamp, too
}

// StampOf returns the stamp of what is at path, links followed, and disk.Stat's error.
func StampOf(path string) (Stamp, error) {
	info, err := disk.Stat(path)
	s := infoStamp(info)
	if err != nil {
		s.unavailable = err.Error()
	}
	return s, err
}

func infoStamp(info fs.FileInfo) Stamp {
	if info == nil {
		return Stamp{}
	}
	st := info.Sys().(*syscall.Stat_t)
	return Stamp{
		ID:    ID{uint64(st.Dev), st.Ino}, //nolint:unconvert // of another type on some architectures
		size:  st.Size,
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
	}
}

// settling is for how long after a change another one may leave the stamp as it is:
// file times move with the kernel's clock tick, on some network file systems with the
// second. ("Racy git" is the same trouble.)
const settling = 2 * time.Second

// A Mark remembers up to which stamps files have been read. The zero Mark has seen none.
//
// What is read counts for good only if the stamps have been seen unchanged for the time
// of settling before. That time is monotonic. The age of a stamp by the wall clock would
// do only while nothing sets that clock: once it is set back, stamps lie in the future.
type Mark struct {
	stamps  []Stamp
	since   time.Time // when these stamps were first seen
	settled bool      // at the last call of Changed
	read    bool      // and were settled before
}

// Changed tells whether files have to be read, now that they have these stamps.
func (m *Mark) Changed(stamps ...Stamp) bool {
	now := time.Now() // after the stamps were taken and before the files are read
	if m.since.IsZero() || !slices.Equal(stamps, m.stamps) {
		*m = Mark{stamps: stamps, since: now}
	}
	m.settled = now.Sub(m.since) >= settling
	return !m.read
}

// Read says that the files were read and used after the last call of Changed.
func (m *Mark) Read() { m.read = m.settled }

// A File is what the content of one file means, read again when the file has changed.
// It is not for concurrent use.
type File[T any] struct {
	// Set once.
	Path  string
	Limit int64 // of its size
	Parse func(data []byte) (T, error)

	mark Mark
	last T
}

// Get returns what the file means now. With an error it returns what it meant last.
func (f *File[T]) Get() (T, error) {
	stamp, err := StampOf(f.Path)
	if err != nil {
		f.mark = Mark{} // what comes back may have the old stamp
		return f.last, err
	}
	if !f.mark.Changed(stamp) {
		return f.last, nil
	}
	data, _, err := disk.Read(f.Path, f.Limit)
	if err != nil {
		return f.last, err
	}
	value, err := f.Parse(data)
	if err != nil {
		return f.last, err
	}
	f.last = value
	f.mark.Read()
	return value, nil
}
