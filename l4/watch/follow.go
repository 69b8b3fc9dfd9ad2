package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Pace is how often Follow looks.
type Pace struct {
	Poll time.Duration // without any event: file systems of the network send none
	// After an event, it looks when there was no other for Quiet, or Patience has
	// passed: two files are replaced one after the other, and neither is good with
	// what the other was. A busy directory cannot put it off for ever.
	Quiet, Patience time.Duration
	Notify          func() (*fsnotify.Watcher, error) // nil = fsnotify.NewWatcher
}

// Follow calls look at once, and again whenever files may have changed, until ctx
// ends. Before it reads, look says which files it is about: a change between saying
// and reading makes it be called again. The paths are those of the latest call.
// Follow calls late at most once, if it can only poll for some of them.
func Follow(ctx context.Context, p Pace, late func(error), look func(about func(paths []string))) {
	f := &follower{late: late, dirs: map[string]ID{}}
	// A nil channel never has anything: what is left is the poll.
	var events chan fsnotify.Event
	var failures chan error
	if p.Notify == nil {
		p.Notify = fsnotify.NewWatcher
	}
	if notify, err := p.Notify(); err != nil {
		f.complain(err)
	} else {
		defer notify.Close()
		f.notify, events, failures = notify, notify.Events, notify.Errors
	}
	poll := time.NewTicker(p.Poll)
	defer poll.Stop()
	settle := time.NewTimer(0) // the first look
	defer settle.Stop()
	var since time.Time // the first event that was not followed by a look
	unsettled := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		settle.Reset(max(0, min(p.Quiet, p.Patience-now.Sub(since))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			unsettled()
		case <-failures: // most likely too many events at once
			unsettled()
		case <-settle.C:
			since = time.Time{}
			look(f.about)
		case <-poll.C:
			if since.IsZero() {
				look(f.about)
			}
		}
	}
}

type follower struct {
	// Set once.
	notify *fsnotify.Watcher // nil: none to be had
	late   func(error)

	dirs       map[string]ID // watched
	complained bool
}

// about watches the directories in which a change can give one of the paths another
// content, and no others.
func (f *follower) about(paths []string) {
	if f.notify == nil {
		return
	}
	wanted := map[string]ID{}
	for _, path := range paths {
		for _, dir := range folders(path) {
			if _, ok := wanted[dir]; !ok {
				st, _ := StampOf(dir) // its error is that it is a directory
				wanted[dir] = st.ID
			}
		}
	}
	for dir, id := range f.dirs {
		if wanted[dir] != id { // gone, or another directory has its name now
			_ = f.notify.Remove(dir) // it may have gone by itself
			delete(f.dirs, dir)
		}
	}
	for dir, id := range wanted {
		if _, ok := f.dirs[dir]; ok || id == (ID{}) {
			continue
		}
		switch err := f.notify.Add(dir); {
		case err == nil:
			f.dirs[dir] = id
		case !errors.Is(err, fs.ErrNotExist):
			f.complain(err)
		}
	}
}

func (f *follower) complain(err error) {
	if !f.complained {
		f.complained = true
		f.late(err)
	}
}

// folders returns the directories that decide what a path leads to: its own and,
// where a part of it is a symbolic link, those of the link and of its target.
func folders(path string) []string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	const maxLinks = 40 // as the kernel has it
	var dirs []string
	at, rest := "/", strings.Split(abs, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name) // which does away with ..
		target, err := os.Readlink(next)
		if err == nil && links < maxLinks {
			links++
			dirs = append(dirs, at)
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
			continue
		}
		if len(rest) == 0 {
			dirs = append(dirs, at)
		}
		at = next
	}
	return dirs
}
