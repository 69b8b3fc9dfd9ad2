package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/poise-lb/poise/l4/disk"
)

// stateFile is the content of the file that keeps what the operator has said.
type stateFile struct {
	Version  int     `json:"version"`
	Backends []Order `json:"backends"`
}

const (
	stateVersion = 1
	// MaxStateFile is the size up to which it is read: some 100 000 backends.
	MaxStateFile = 16 << 20
)

// load reads the file at the start. Whatever is wrong with it is logged and keeps
// nobody from starting; what cannot be understood is put aside, because the file
// will be written anew. A file that cannot be read is never written: what it keeps is
// not in force, and would be lost.
func (o *operator) load(path string) {
	o.path = path
	if path == "" {
		return
	}
	entries, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		o.log.Debug("no state of the operator is kept yet", "file", path)
	case errors.Is(err, errState):
		o.putAside(path, err)
	case err != nil:
		o.unread = path
		o.log.Error("the operator's state cannot be read: it is not in force, and its file stays as it is", "file", path, "error", err)
		return
	}
	o.mayReplace = path
	for _, h := range entries {
		o.held[h.Pool+"|"+h.Address] = h
	}
	if len(entries) > 0 {
		o.log.Info("the operator's state is read", "file", path, "backends", len(entries))
	}
}

// putAside makes way for a new file.
func (o *operator) putAside(path string, why error) {
	path = linked(path)
	aside := path + ".corrupt"
	if moved := os.Rename(path, aside); moved != nil {
		aside = moved.Error()
	}
	o.log.Error("the operator's state is lost: its file cannot be understood", "file", path, "error", why, "kept_as", aside)
}

// inspect tells why the file at path must not be replaced. saving is held.
func (o *operator) inspect(path string) error {
	if o.mayReplace == path {
		return nil
	}
	_, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case path == o.unread:
		return fmt.Errorf("%s could not be read at the start and is left as it is; restart once it can be read, or remove it", path)
	case errors.Is(err, errState):
		o.putAside(path, err)
	case err != nil:
		return fmt.Errorf("%s cannot be read and is left as it is: %w", path, err)
	}
	o.mayReplace = path
	return nil
}

// errState is the error of a file that can be read but not understood.
var errState = errors.New("not a state file of this version")

func readState(path string) ([]Order, error) {
	data, _, err := disk.Read(path, MaxStateFile)
	if errors.Is(err, disk.ErrLarge) {
		return nil, fmt.Errorf("%w: %w", errState, err)
	}
	if err != nil {
		return nil, err
	}
	return parseState(data)
}

func parseState(data []byte) ([]Order, error) {
	var content stateFile
	if len(data) > MaxStateFile {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", errState, MaxStateFile)
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%w: %w", errState, err)
	}
	if content.Version != stateVersion {
		return nil, fmt.Errorf("%w: version %d, not %d", errState, content.Version, stateVersion)
	}
	for _, h := range content.Backends {
		if err := h.valid(); err != nil {
			return nil, fmt.Errorf("%w: %w", errState, err)
		}
	}
	return content.Backends, nil
}

// use makes path the file, which gets what holds.
func (o *operator) use(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if path != o.path {
		o.path = path
		o.changedLocked()
	}
}

// errSlow is the error of a disk that takes longer than is waited for.
var errSlow = fmt.Errorf("the disk has not taken it within %s", disk.Patience)

// save writes the file if it does not say what holds. Whoever has called set
// before finds it in the file afterwards, unless that takes longer than
// disk.Patience: then it is written as soon as the disk takes it.
func (o *operator) save() error {
	limit := time.NewTimer(disk.Patience)
	defer limit.Stop()
	select {
	case o.saving <- struct{}{}:
	case <-limit.C:
		return errSlow
	}
	done := make(chan error, 1)
	go func() {
		done <- o.saveNow()
		<-o.saving
	}()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return errSlow
	}
}

// saveNow writes until the file says what holds. saving is held.
func (o *operator) saveNow() error {
	for {
		path, content := o.take()
		if path == "" {
			return nil
		}
		err := o.inspect(path)
		if err == nil {
			err = o.write(path, content)
		}
		if err != nil {
			o.mu.Lock()
			o.unsaved = true
			o.mu.Unlock()
			return err
		}
	}
}

// take returns what has to be written, and where; "" = nothing has.
func (o *operator) take() (path string, content stateFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.unsaved {
		return "", content
	}
	o.unsaved = false
	content = stateFile{Version: stateVersion, Backends: []Order{}}
	for _, h := range o.held {
		content.Backends = append(content.Backends, h)
	}
	slices.SortFunc(content.Backends, func(a, b Order) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Address, b.Address))
	})
	return o.path, content
}

// linked follows symbolic links at the end of a path, also to what is not there yet:
// a link to the file stays one.
func linked(path string) string {
	for range 40 { // as the kernel does
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return path
}

// writeState replaces the file as a whole or not at all, whenever the machine
// may stop: the new content is on the disk before it gets the name, and the name
// before this returns. A file that CreateTemp makes has mode 0600.
func writeState(path string, content stateFile) (err error) {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	path = linked(path)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(append(data, '\n')); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// saver writes what changes without a command, such as a weight that was edited,
// until ctx ends. A command writes its change itself, to be able to say that it
// could not.
func (o *operator) saver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			o.saveOrLog()
			return
		case <-o.dirty:
			o.saveOrLog()
		}
	}
}

func (o *operator) saveOrLog() {
	if err := o.save(); err != nil {
		o.log.Error("the operator's state is not kept", "error", err)
	}
}
