package cert

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/poise-lb/poise/l4/disk"
)

// Source is files to watch, and whose they are.
type Source struct {
	Name string // of who uses them, for messages: "service web"
	Files
}

// Files is a *Store or a *Client.
type Files interface {
	Refresh() (changed []string, err error)
	Warnings() []string
	broken() int
	files() []string
}

// pace is how often a watch does what.
type pace struct {
	poll time.Duration // without any event: file systems of the network send none
	// After an event, the files are read when there was no other for quiet, or
	// patience has passed: two files are replaced one after the other, and neither is
	// good with what the other was. A busy directory cannot put it off for ever.
	quiet, patience time.Duration
	notify          func() (*fsnotify.Watcher, error)
}

// A State is what an operator should know of the files of all sources.
type State struct {
	Warnings []string // the object, and what is wrong: "service web: tls.certificates[0].cert: ..."
	// Broken is how many certificates, keys, lists of authorities and OCSP responses are
	// not used as they are now on disk, because they cannot be.
	Broken int
}

// Watch keeps sources, as they are at any time, up to date with their files until
// ctx ends. It logs what was taken up, and every warning once and then once a day
// while it lasts: also those that were there from the beginning. Each look at the
// files, once every few seconds, ends with a call of tell.
func Watch(ctx context.Context, sources func() []Source, log *slog.Logger, tell func(State)) {
	watch(ctx, sources, log, tell, pace{poll: 5 * time.Second, quiet: 500 * time.Millisecond, patience: 3 * time.Second, notify: fsnotify.NewWatcher})
}

func watch(ctx context.Context, sources func() []Source, log *slog.Logger, tell func(State), p pace) {
	w := &watcher{sources: sources, log: log, tell: tell, dirs: map[string]disk.ID{}, said: map[string]said{}}
	// A nil channel never has anything: what is left is the poll.
	var events chan fsnotify.Event
	var failures chan error
	if notify, err := p.notify(); err != nil {
		w.late(err)
	} else {
		defer notify.Close()
		w.notify, events, failures = notify, notify.Events, notify.Errors
	}
	poll := time.NewTicker(p.poll)
	defer poll.Stop()
	settle := time.NewTimer(0) // the first pass
	defer settle.Stop()
	var since time.Time // the first event that was not followed by a pass
	unsettled := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		settle.Reset(max(0, min(p.quiet, p.patience-now.Sub(since))))
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
			w.pass(time.Now())
		case <-poll.C:
			if since.IsZero() {
				w.pass(time.Now())
			}
		}
	}
}

type watcher struct {
	// Set once.
	sources func() []Source
	log     *slog.Logger
	tell    func(State)
	notify  *fsnotify.Watcher // nil: none to be had

	dirs     map[string]disk.ID // watched
	said     map[string]said
	complain bool // late has been said
}

// said is a warning that was logged.
type said struct {
	at      time.Time
	present bool // in the last pass
}

const (
	sayAgain     = 24 * time.Hour
	sayReturning = time.Minute // what comes and goes is not logged more often
)

// pass refreshes all sources and logs what is new.
func (w *watcher) pass(now time.Time) {
	sources := w.sources()
	// First, so that nothing is missed between reading and watching.
	w.follow(sources)
	taken, fresh, current := map[string]bool{}, map[string]bool{}, []string(nil)
	whose := map[string][]string{} // the names of the sources with a warning
	var state State
	for _, s := range sources {
		changed, err := s.Refresh()
		for _, path := range changed {
			// Services may share a file: that is one piece of news.
			if !taken[path] {
				taken[path] = true
				w.log.Info("certificate file has changed and is used as it is now", "file", path)
			}
		}
		if many, ok := err.(problems); ok {
			for _, problem := range many {
				fresh[problem.Error()] = true
			}
		}
		state.Broken += s.broken()
		for _, text := range s.Warnings() {
			if names := whose[text]; names == nil {
				current = append(current, text)
			} else if names[len(names)-1] == s.Name {
				continue
			}
			whose[text] = append(whose[text], s.Name)
		}
	}
	was := w.said
	w.said = make(map[string]said, len(current))
	for text, s := range was {
		if now.Sub(s.at) < sayReturning {
			w.said[text] = said{at: s.at}
		}
	}
	for _, text := range current {
		state.Warnings = append(state.Warnings, strings.Join(whose[text], ", ")+": "+text)
		s, known := was[text]
		wait := sayAgain
		if fresh[text] || !s.present {
			wait = sayReturning
		}
		if !known || now.Sub(s.at) >= wait {
			w.log.Warn("certificates need attention", "of", strings.Join(whose[text], ", "), "reason", text)
			s.at = now
		}
		s.present = true
		w.said[text], was[text] = s, s
	}
	w.tell(state)
}

// follow watches the directories in which a change can give a path of the sources
// another content, and no others.
func (w *watcher) follow(sources []Source) {
	if w.notify == nil {
		return
	}
	wanted := map[string]disk.ID{}
	for _, s := range sources {
		for _, path := range s.files() {
			for _, dir := range folders(path) {
				if _, ok := wanted[dir]; !ok {
					st, _ := disk.StampOf(dir) // its error is that it is a directory
					wanted[dir] = st.ID
				}
			}
		}
	}
	for dir, id := range w.dirs {
		if wanted[dir] != id { // gone, or another directory has its name now
			_ = w.notify.Remove(dir) // it may have gone by itself
			delete(w.dirs, dir)
		}
	}
	for dir, id := range wanted {
		if _, ok := w.dirs[dir]; ok || id == (disk.ID{}) {
			continue
		}
		switch err := w.notify.Add(dir); {
		case err == nil:
			w.dirs[dir] = id
		case !errors.Is(err, fs.ErrNotExist):
			w.late(err)
		}
	}
}

func (w *watcher) late(err error) {
	if !w.complain {
		w.complain = true
		w.log.Warn("changes of certificate files are noticed some seconds late", "error", err)
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
