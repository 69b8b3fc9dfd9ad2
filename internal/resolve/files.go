package resolve

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/poise-lb/poise/l4/disk"
	"github.com/poise-lb/poise/l4/watch"
)

// lookInterval is how often a watched file is looked at. Polling works for every file
// system and every way to replace a file: by writing, renaming, and by swapping
// a symbolic link on the way to it.
const lookInterval = time.Second

// FileTarget is a file to watch. Its values come from Parse, which says of content
// that it is bad by an error; it must be a function of the content alone.
type FileTarget[T any] struct {
	Key   string // identity: what is known stays for as long as each Set has it
	Path  string
	Parse func(data []byte) (T, error)
}

// FileStatus is what is known about a watched file.
type FileStatus[T any] struct {
	Value  T         // of the last good content; the zero value before there was any
	Good   bool      // there was one
	Detail string    // what is wrong with the file as it is now; "" = nothing
	Since  time.Time // Detail or Value have been so since
}

// Files watches a set of files, all by one goroutine: each is a stat a second.
type Files[T any] struct {
	onChange func(key string, st FileStatus[T]) // set once
	stop     context.CancelFunc                 // set once
	running  sync.WaitGroup

	mu    sync.Mutex          // guards the following
	files map[string]*file[T] // replaced as a whole
}

// file is one of Files. Status and data are guarded by Files.mu; the rest belongs to
// the goroutine, once the file is one of those that are watched.
type file[T any] struct {
	FileTarget[T]
	mark   watch.Mark
	inode  watch.ID
	data   []byte // last good content
	sum    [sha256.Size]byte
	next   [sha256.Size]byte // content seen once that was written in place
	status FileStatus[T]
}

// NewFiles returns a watcher of no files. onChange is told every new value and
// every change of a file's Detail, on the watcher's goroutine or on that of a
// caller of Set; it must not call Close, nor wait for a lock that a caller of Close
// holds. It may call Status.
func NewFiles[T any](onChange func(key string, st FileStatus[T])) *Files[T] {
	ctx, stop := context.WithCancel(context.Background())
	w := &Files[T]{onChange: onChange, stop: stop, files: map[string]*file[T]{}}
	w.running.Go(func() { w.watch(ctx) })
	return w
}

// Set makes these the files that are watched. A file that is new is read before
// Set returns; one that was there before keeps its value even if the new Parse
// refuses the content as it is now, or the new Path leads nowhere. A Key that
// comes twice counts once, the first time.
func (w *Files[T]) Set(targets []FileTarget[T]) {
	w.Prepare(targets)()
}

// Prepare reads the files of a Set that may come: nothing is watched differently
// before commit is called, which reads nothing. There is one at a time, and it need
// not be committed.
func (w *Files[T]) Prepare(targets []FileTarget[T]) (commit func()) {
	keep := make(map[string]*file[T], len(targets))
	changed := map[string]FileStatus[T]{}
	for _, want := range targets {
		if keep[want.Key] != nil {
			continue
		}
		f := &file[T]{FileTarget: want, status: FileStatus[T]{Since: time.Now()}}
		w.mu.Lock()
		if known := w.files[want.Key]; known != nil {
			f.status, f.data = known.status, known.data // and it is read with the new eyes
		}
		w.mu.Unlock()
		if st, news := w.lookAt(f); news {
			changed[want.Key] = st
		}
		keep[want.Key] = f
	}
	return func() {
		w.mu.Lock()
		w.files = keep
		w.mu.Unlock()
		for key, st := range changed {
			w.onChange(key, st)
		}
	}
}

// Status returns what is known about a file, and whether it is watched.
func (w *Files[T]) Status(key string) (FileStatus[T], bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.files[key]
	if f == nil {
		return FileStatus[T]{}, false
	}
	return f.status, true
}

// Close ends the watching and waits for it.
func (w *Files[T]) Close() {
	w.stop()
	w.running.Wait()
}

func (w *Files[T]) watch(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look()
		}
	}
}

// look looks at every file once.
func (w *Files[T]) look() {
	w.mu.Lock()
	files := w.files
	w.mu.Unlock()
	for key, f := range files {
		if st, news := w.lookAt(f); news {
			w.onChange(key, st)
		}
	}
}

// lookAt looks at a file and returns its status, and whether that has changed.
func (w *Files[T]) lookAt(f *file[T]) (st FileStatus[T], changed bool) {
	data, fresh, err := f.read()
	if err == nil && !fresh {
		return st, false
	}
	var value T
	if err == nil {
		value, err = f.Parse(data)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = f.concludeLocked(data, value, err)
	return f.status, changed
}

// read returns the file's content if there may be something new in it. What was
// written into the same file counts only once it has stayed the same from one
// look to the next: until then whoever writes may be in the middle of it.
func (f *file[T]) read() (data []byte, fresh bool, err error) {
	stamp, err := watch.StampOf(f.Path)
	if err != nil {
		f.forget()
		return nil, false, err
	}
	if !f.mark.Changed(stamp) {
		return nil, false, nil
	}
	if data, _, err = disk.Read(f.Path, MaxFile); err != nil {
		f.forget()
		return nil, false, err
	}
	sum := sha256.Sum256(data)
	same := stamp.ID == f.inode
	f.inode = stamp.ID
	if same && sum != f.sum && sum != f.next {
		f.next = sum
		return nil, false, nil
	}
	f.mark.Read()
	f.next = [sha256.Size]byte{}
	fresh = sum != f.sum
	f.sum = sum
	return data, fresh, nil
}

// forget makes the next content that can be read count, whatever it is.
func (f *file[T]) forget() {
	f.mark, f.inode, f.sum = watch.Mark{}, watch.ID{}, [sha256.Size]byte{}
}

// concludeLocked moves the status by what was read and reports whether it has
// changed. Files.mu is held.
func (f *file[T]) concludeLocked(data []byte, value T, err error) (changed bool) {
	st := &f.status
	if err != nil {
		changed = st.Detail != err.Error()
		st.Detail = err.Error()
	} else {
		changed = st.Detail != "" || !st.Good || !slices.Equal(data, f.data)
		st.Value, st.Good, st.Detail, f.data = value, true, "", data
	}
	if changed {
		st.Since = time.Now()
	}
	return changed
}

// MaxFile bounds what is read, some 100 000 backends.
const MaxFile = 4 << 20
