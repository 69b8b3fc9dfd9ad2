package cert

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/poise-lb/poise/l4/watch"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines that have a part.
func (l *logged) with(part string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Watching without polling, and without anything else.
var (
	byEvent = watch.Pace{Poll: time.Hour, Quiet: 20 * time.Millisecond, Patience: time.Second}
	byPoll  = watch.Pace{Poll: 20 * time.Millisecond, Notify: func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }}
)

// start watches sources until the test ends, and returns when the first pass is over.
func start(t testing.TB, p watch.Pace, sources ...Files) (*logged, *passes) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log, done, marker := new(logged), make(chan struct{}), &passes{seen: make(chan struct{}, 1)}
	go func() {
		defer close(done)
		newWatcher(func() []Source { return named(append(slices.Clone(sources), marker)...) }, log.logger(), func(State) {}).run(ctx, p)
	}()
	t.Cleanup(func() { cancel(); <-done })
	marker.wait(t)
	return log, marker
}

// named are sources of the services a, b and so on.
func named(files ...Files) (sources []Source) {
	for i, f := range files {
		sources = append(sources, Source{"service " + string(rune('a'+i)), f})
	}
	return sources
}

// passes is a source that tells when it is refreshed, without holding anything up.
type passes struct{ seen chan struct{} }

func (p *passes) Refresh() ([]string, error) {
	select {
	case p.seen <- struct{}{}:
	default:
	}
	return nil, nil
}

func (p *passes) Warnings() []string { return nil }
func (p *passes) broken() int        { return 0 }
func (p *passes) files() []string    { return nil }

// wait returns at the end of a pass that was not waited for yet.
func (p *passes) wait(t testing.TB) {
	t.Helper()
	select {
	case <-p.seen:
	case <-time.After(patience):
		t.Fatal("nothing is refreshed")
	}
}

// eventually waits for a condition that comes true by itself.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// uses waits until the store's first certificate is this one.
func uses(t testing.TB, what string, s *Store, crt []byte) {
	t.Helper()
	want := must(parseChain(crt))[0].DNSNames
	eventually(t, what, func() bool { return slices.Equal(s.Certificates()[0].Names, want) })
}

var stepped int

// fresh is a new pair, told apart by its name.
func fresh(ca *authority) (crt, key []byte) {
	stepped++
	k := newECKey()
	return ca.issue(k, nil, fmt.Sprintf("v%d.test", stepped)), keyPEM(k)
}

func paces(t *testing.T, test func(t *testing.T, p watch.Pace)) {
	t.Run("events", func(t *testing.T) { test(t, byEvent) })
	t.Run("poll", func(t *testing.T) { test(t, byPoll) })
}

func TestWatchRenames(t *testing.T) {
	paces(t, func(t *testing.T, p watch.Pace) {
		ca, dir := newAuthority("ca"), t.TempDir()
		crt, key := fresh(ca)
		pair := Pair{Cert: write(t, filepath.Join(dir, "crt"), crt), Key: write(t, filepath.Join(dir, "key"), key)}
		s := load(t, Spec{Certificates: []Pair{pair}}, nil)
		log, _ := start(t, p, s)
		for i := range 20 {
			crt, key := fresh(ca)
			replace(t, pair.Cert, crt)
			replace(t, pair.Key, key)
			uses(t, fmt.Sprint("rename ", i), s, crt)
		}
		eventually(t, "a line for every change", func() bool { return len(log.with("file="+pair.Cert)) == 20 })
		// In place, and gone and back.
		crt, key = fresh(ca)
		write(t, pair.Key, key)
		write(t, pair.Cert, crt)
		uses(t, "written in place", s, crt)
		remove(t, pair.Key)
		eventually(t, "a missing file", func() bool { return len(log.with("no such file")) == 1 })
		crt, key = fresh(ca)
		replace(t, pair.Cert, crt)
		write(t, pair.Key, key)
		uses(t, "a file that is back", s, crt)
	})
}

// As Kubernetes mounts a secret: the files are links into ..data, itself a link that
// is swapped for one to another directory, and the old directory is removed.
func TestWatchKubernetes(t *testing.T) {
	paces(t, func(t *testing.T, p watch.Pace) {
		ca, dir := newAuthority("ca"), t.TempDir()
		version := 0
		swap := func(crt, key []byte) {
			t.Helper()
			old, _ := os.Readlink(filepath.Join(dir, "..data"))
			version++
			name := fmt.Sprintf("..v%d", version)
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name, "tls.crt"), crt)
			write(t, filepath.Join(dir, name, "tls.key"), key)
			link(t, name, filepath.Join(dir, "..data"))
			if old != "" {
				os.RemoveAll(filepath.Join(dir, old))
			}
		}
		swap(fresh(ca))
		link(t, "..data/tls.crt", filepath.Join(dir, "tls.crt"))
		link(t, "..data/tls.key", filepath.Join(dir, "tls.key"))
		s := load(t, Spec{Certificates: []Pair{{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}}}, nil)
		log, _ := start(t, p, s)
		for i := range 20 {
			crt, key := fresh(ca)
			swap(crt, key)
			uses(t, fmt.Sprint("swap ", i), s, crt)
		}
		// Both files change at one moment: there is nothing to complain about.
		if got := log.with("reason="); len(got) > 0 {
			t.Errorf("warned: %q", got)
		}
	})
}

// link makes or swaps a symbolic link in one step.
func link(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path+"_tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"_tmp", path); err != nil {
		t.Fatal(err)
	}
}

// A link anywhere in the path, its target elsewhere; and directories that come anew.
func TestWatchFollowsPaths(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	fill := func(name string) []byte {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		crt, key := fresh(ca)
		replace(t, filepath.Join(at, "crt"), crt)
		replace(t, filepath.Join(at, "key"), key)
		return crt
	}
	fill("archive/1")
	link(t, filepath.Join(dir, "archive/1"), filepath.Join(dir, "live"))
	s := load(t, Spec{Certificates: []Pair{{Cert: filepath.Join(dir, "live/crt"), Key: filepath.Join(dir, "live/../live/key")}}}, nil)
	start(t, byEvent, s)
	for i := range 5 {
		name := fmt.Sprint("archive/", i+2)
		crt := fill(name)
		link(t, name, filepath.Join(dir, "live"))
		uses(t, "the link of the directory is swapped", s, crt)
		uses(t, "the file behind it is replaced", s, fill(name))
	}
	// The directory is moved away, and another one takes its name.
	for range 5 {
		crt := fill("next")
		now, _ := os.Readlink(filepath.Join(dir, "live"))
		os.RemoveAll(filepath.Join(dir, "gone"))
		if err := os.Rename(filepath.Join(dir, now), filepath.Join(dir, "gone")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, now)); err != nil {
			t.Fatal(err)
		}
		uses(t, "the directory is replaced", s, crt)
		uses(t, "the file in it is replaced", s, fill(now))
	}
}

// A pair that stays broken is one warning, whoever uses it, and the good one stays.
func TestWatchWarnsOnce(t *testing.T) {
	paces(t, func(t *testing.T, p watch.Pace) {
		ca, dir := newAuthority("ca"), t.TempDir()
		crt, key := fresh(ca)
		pair := Pair{Cert: write(t, filepath.Join(dir, "crt"), crt), Key: write(t, filepath.Join(dir, "key"), key)}
		s, same := load(t, Spec{Certificates: []Pair{pair}}, nil), load(t, Spec{Certificates: []Pair{pair}}, nil)
		log, passes := start(t, p, s, same)
		next, nextKey := fresh(ca)
		replace(t, pair.Cert, next)
		warned := func() []string { return log.with("does not belong") }
		eventually(t, "the warning", func() bool { return len(warned()) > 0 })
		for i := range 5 {
			// Reason enough to look again, and nothing new.
			write(t, filepath.Join(dir, "other"), []byte{byte(i)})
			replace(t, pair.Cert, next)
			passes.wait(t)
		}
		uses(t, "the good one stays", s, crt)
		replace(t, pair.Key, nextKey)
		uses(t, "the pair is whole", s, next)
		uses(t, "for all who use it", same, next)
		if got := warned(); len(got) != 1 {
			t.Errorf("%d warnings: %q", len(got), got)
		}
		// Two, if the key came after the first of them was looked after.
		eventually(t, "the news", func() bool { n := len(log.with("file=" + pair.Cert)); return n == 1 || n == 2 })
	})
}

// Two files that are replaced one shortly after the other are one change.
func TestWatchWaitsForTheOtherHalf(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	crt, key := fresh(ca)
	pair := Pair{Cert: write(t, filepath.Join(dir, "crt"), crt), Key: write(t, filepath.Join(dir, "key"), key)}
	s := load(t, Spec{Certificates: []Pair{pair}}, nil)
	// As long as files come, and until the end of patience, nothing is read.
	log, _ := start(t, watch.Pace{Poll: time.Hour, Quiet: 3 * time.Second, Patience: 3 * time.Second}, s)
	for range 3 {
		crt, key = fresh(ca)
		replace(t, pair.Cert, crt)
		replace(t, pair.Key, key)
	}
	uses(t, "both", s, crt)
	if got := log.with("reason="); len(got) > 0 {
		t.Errorf("warned: %q", got)
	}
}

// A directory in which something always happens does not put it off for ever.
func TestWatchInBusyDirectory(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	crt, key := fresh(ca)
	pair := Pair{Cert: write(t, filepath.Join(dir, "crt"), crt), Key: write(t, filepath.Join(dir, "key"), key)}
	s := load(t, Spec{Certificates: []Pair{pair}}, nil)
	start(t, watch.Pace{Poll: time.Hour, Quiet: 30 * time.Second, Patience: 200 * time.Millisecond}, s)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = os.WriteFile(filepath.Join(dir, "busy"), []byte{byte(i)}, 0o600)
			}
		}
	})
	defer func() { close(stop); busy.Wait() }()
	for range 3 {
		crt, key = fresh(ca)
		replace(t, pair.Key, key)
		replace(t, pair.Cert, crt)
		uses(t, "in between", s, crt)
	}
}

// Sources come and go with reloads; directories that nobody needs are left alone.
func TestWatchFollowsSources(t *testing.T) {
	ca := newAuthority("ca")
	var mu sync.Mutex
	var sources []Source
	ctx, cancel := context.WithCancel(context.Background())
	log, done := new(logged), make(chan struct{})
	go func() {
		defer close(done)
		newWatcher(func() []Source { mu.Lock(); defer mu.Unlock(); return slices.Clone(sources) }, log.logger(), func(State) {}).run(ctx, byPoll)
	}()
	defer func() { cancel(); <-done }()
	for range 3 {
		dir := t.TempDir()
		crt, key := fresh(ca)
		pair := Pair{Cert: write(t, filepath.Join(dir, "crt"), crt), Key: write(t, filepath.Join(dir, "key"), key)}
		s := load(t, Spec{Certificates: []Pair{pair}}, nil)
		caFile := write(t, filepath.Join(dir, "ca"), ca.pem())
		mu.Lock()
		sources = named(s, loadClient(t, ClientSpec{CA: caFile}))
		mu.Unlock()
		crt, key = fresh(ca)
		replace(t, pair.Key, key)
		replace(t, pair.Cert, crt)
		uses(t, "a new source", s, crt)
		replace(t, caFile, newAuthority("x").pem())
		eventually(t, "a client's authority", func() bool { return len(log.with("file="+caFile)) == 1 })
	}
}
