package accesslog

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// A File appends to a file by name and can open it anew, so that logrotate may
// rename it away. Its methods may be called from any goroutine.
type File struct {
	path string
	f    atomic.Pointer[os.File]
}

// Open opens path for appending and creates it with mode 0640. A named pipe
// that nobody reads is an error, not a wait.
func Open(path string) (*File, error) {
	f := &File{path: path}
	o, err := f.open()
	if err != nil {
		return nil, err
	}
	f.f.Store(o)
	return f, nil
}

func (f *File) open() (*os.File, error) {
	// O_NONBLOCK means nothing to a regular file; a pipe without a reader
	// answers ENXIO instead of blocking, and its writes get deadlines.
	return os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
}

// Reopen opens the path anew and closes what was open before; a write that goes
// on is finished where it began. On an error nothing has changed.
func (f *File) Reopen() error {
	o, err := f.open()
	if err != nil {
		return err
	}
	return f.f.Swap(o).Close()
}

// Write appends p.
func (f *File) Write(p []byte) (n int, err error) {
	for {
		o := f.f.Load()
		m, err := o.Write(p[n:])
		n += m
		if errors.Is(err, os.ErrClosed) && f.f.Load() != o {
			continue // Reopen came between: the rest belongs to the new file
		}
		return n, err
	}
}

// SetWriteDeadline bounds writes if the path is a pipe.
func (f *File) SetWriteDeadline(t time.Time) error { return f.f.Load().SetWriteDeadline(t) }

// Close closes the file.
func (f *File) Close() error { return f.f.Load().Close() }
