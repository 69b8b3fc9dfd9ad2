package spool

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A File appends to a file by name and can open it anew, so that logrotate may
// rename it away. Its methods may be called from any goroutine.
type File struct {
	path string
	f    atomic.Pointer[os.File]

	mu      sync.Mutex // guards the following
	opening *opening   // nil: the file is not being opened anew
}

// opening is one attempt to open a file anew.
type opening struct {
	done chan struct{}
	err  error // once done
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
// on is finished where it began. On an error nothing has changed. It waits for the
// file system no longer than its patience lasts; a file that opens later than that
// is used from then on all the same.
func (f *File) Reopen(patience time.Duration) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		o, mine := f.begin()
		select {
		case <-o.done:
		case <-limit.C:
			return fmt.Errorf("%s has not opened within %s", f.path, patience)
		}
		if mine {
			return o.err
		}
		// An attempt that another caller began may have opened the file before it was
		// renamed.
	}
}

// begin returns the attempt that is under way, or a new one, and whether it is new.
// There is never more than one: each may keep a thread for as long as a disk likes.
func (f *File) begin() (o *opening, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opening != nil {
		return f.opening, false
	}
	o = &opening{done: make(chan struct{})}
	f.opening = o
	go func() {
		file, err := f.open()
		if err == nil {
			err = f.f.Swap(file).Close()
		}
		f.mu.Lock()
		f.opening = nil
		f.mu.Unlock()
		o.err = err
		close(o.done)
	}()
	return o, true
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
