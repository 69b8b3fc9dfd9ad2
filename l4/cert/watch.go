package cert

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/poise-lb/poise/l4/watch"
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

// pace is that of Watch.
var pace = watch.Pace{Poll: 5 * time.Second, Quiet: 500 * time.Millisecond, Patience: 3 * time.Second}

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
	newWatcher(sources, log, tell).run(ctx, pace)
}

type watcher struct {
	// Set once.
	sources func() []Source
	log     *slog.Logger
	tell    func(State)

	said map[string]said
}

func newWatcher(sources func() []Source, log *slog.Logger, tell func(State)) *watcher {
	return &watcher{sources: sources, log: log, tell: tell, said: map[string]said{}}
}

func (w *watcher) run(ctx context.Context, p watch.Pace) {
	late := func(err error) {
		w.log.Warn("changes of certificate files are noticed some seconds late", "error", err)
	}
	watch.Follow(ctx, p, late, func(about func(paths []string)) { w.pass(time.Now(), about) })
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

// pass refreshes all sources and logs what is new. It says which files it reads first,
// so that nothing is missed between reading and watching.
func (w *watcher) pass(now time.Time, about func(paths []string)) {
	sources := w.sources()
	var paths []string
	for _, s := range sources {
		paths = append(paths, s.files()...)
	}
	about(paths)
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
