// Package disk reads the files that a configuration names. It is the one place that
// says what such a file may be: a regular one, of a size that makes sense for what is
// in it. A named pipe, a device or a log in its place is an error at once, never a
// wait: check, start, reload and probes all come through here.
package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrIrregular is the error for what is no regular file.
var ErrIrregular = errors.New("must be a regular file")

// ErrLarge is the error for a file that is larger than its reader allows.
var ErrLarge = errors.New("is too large")

// tooLarge is an ErrLarge that says what the limit is.
type tooLarge int64

func (l tooLarge) Error() string {
	if l%(1<<20) == 0 {
		return fmt.Sprintf("is larger than %d MiB", l>>20)
	}
	return fmt.Sprintf("is larger than %d bytes", l)
}

func (l tooLarge) Is(target error) bool { return target == ErrLarge }

// Patience is how long to wait for a disk where one could go on without. It is also how
// long a read may wait: regular files make no reader wait but for some of /proc and
// /sys, which call themselves regular and answer when there is news.
const Patience = time.Second

// Stat returns what is at path, links followed. Its error is a *fs.PathError; one says
// that there is something else than a regular file.
func Stat(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: Bare(err)}
	}
	return info, regular(path, info)
}

func regular(path string, info fs.FileInfo) error {
	what := "something"
	switch m := info.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w, and %w", syscall.EISDIR, ErrIrregular)}
	case m&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case m&fs.ModeDevice != 0:
		what = "a device"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	}
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is %s, and %w", what, ErrIrregular)}
}

// Read returns the content of the regular file at path, of at most limit bytes, and
// what it is like. Every error is a *fs.PathError. What is not regular is not even
// opened: to open a pipe wakes who waits to write, to open a watchdog starts it.
func Read(path string, limit int64) ([]byte, fs.FileInfo, error) {
	if _, err := Stat(path); err != nil {
		return nil, nil, err
	}
	// It may be another one by now. Without O_NONBLOCK a pipe would be waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := regular(path, info); err != nil {
		return nil, nil, err
	}
	large := &fs.PathError{Op: "read", Path: path, Err: tooLarge(limit)}
	if info.Size() > limit {
		return nil, nil, large
	}
	_ = f.SetReadDeadline(time.Now().Add(Patience)) // most cannot have one, and need none
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, nil, err
	case int64(len(data)) > limit:
		return nil, nil, large
	}
	return data, info, nil
}

// Bare takes the path out of an error of this package, for messages that name it
// themselves.
func Bare(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
