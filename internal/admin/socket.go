package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketMode lets the owner and the group connect, for which a socket needs
// write permission.
const socketMode = 0o660

// A socketListener is a unix listener that removes its path at the end, if it
// still is its own.
type socketListener struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// listenSocket binds path, in a folder that is made if need be. A socket there
// that nobody listens on, left by a process that died, is replaced; one that
// answers is an error, and so is anything that is not a socket.
func listenSocket(path string) (*socketListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of %s: %w", path, err)
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}

	// bind makes the file with the mode of the socket less the umask: never more
	// than socketMode this way. Chmod adds what the umask took.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), socketMode) })
		return errors.Join(err, chmodErr)
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	s := &socketListener{UnixListener: l.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false) // it would remove whatever is at path by then
	if err = os.Chmod(path, socketMode); err == nil {
		s.made, err = os.Lstat(path)
	}
	if err != nil {
		_ = os.Remove(path)
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// lockFolder keeps two processes that start at once from both taking a socket
// for stale, the second removing the first one's. The lock ends with the process.
func lockFolder(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for range 20 {
		if err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return func() { _ = d.Close() }, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = d.Close()
	return nil, fmt.Errorf("cannot lock the folder; is another poise starting? %w", err)
}

// removeStale makes path free, if what is there may be removed.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; remove it, or choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%s is in use: another poise is running; stop it first, or choose another path", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s may be in use by another process, for it cannot be asked: %w", path, err)
	}
	return os.Remove(path)
}

// unlink removes the path, unless somebody has put something else there. It must
// come before Close: as long as we listen, others see a socket that answers and
// leave it alone.
func (s *socketListener) unlink() {
	if fi, err := os.Lstat(s.path); err == nil && os.SameFile(fi, s.made) {
		_ = os.Remove(s.path) // left behind it is stale, which the next start heals
	}
}
