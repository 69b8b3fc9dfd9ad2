package daemon

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/l4/disk"
)

// reloads is a queue with one place. A reload that was asked for and has not
// begun answers everybody who asks meanwhile; once it has begun the file may have
// been read already, and who asks then waits for the next one.
type reloads struct {
	// Set once.
	wake   chan struct{}   // capacity 1: there is one to do
	ending context.Context // ends with close
	close  func()

	mu   sync.Mutex // guards the following
	next *reload    // nil: nobody asks
}

type reload struct {
	done   chan struct{}
	result admin.ReloadResult // once done
}

func newReloads() *reloads {
	r := &reloads{wake: make(chan struct{}, 1)}
	r.ending, r.close = context.WithCancel(context.Background())
	return r
}

// ask returns the next reload to begin.
func (r *reloads) ask() *reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &reload{done: make(chan struct{})}
		r.wake <- struct{}{} // empty: take has emptied it
	}
	return r.next
}

// take waits for a reload that is asked for; nil means that there will be none.
func (r *reloads) take() *reload {
	select {
	case <-r.ending.Done():
		return nil
	case <-r.wake:
	}
	select {
	case <-r.ending.Done(): // both came, and the end counts
		return nil
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next = nil
	return next
}

// Why a reload is refused without a look at the configuration.
var (
	errStopping = errors.New("the daemon is stopping")
	errEmbedded = errors.New("the configuration does not come from a file: it cannot be reloaded")
)

// Reload reads the configuration anew and makes all of it take effect, or
// nothing. The end of ctx ends only the waiting.
func (d *Daemon) Reload(ctx context.Context) admin.ReloadResult {
	r := d.reloads.ask()
	select {
	case <-r.done:
		return r.result
	case <-d.reloads.ending.Done():
		return refusal(errStopping)
	case <-ctx.Done():
		return refusal(ctx.Err())
	}
}

func refusal(err error) admin.ReloadResult {
	return admin.ReloadResult{Error: err.Error()}
}

// reloader does the reloads, one at a time, until there will be no more.
func (d *Daemon) reloader() {
	for r := d.reloads.take(); r != nil; r = d.reloads.take() {
		r.result = d.reload()
		close(r.done)
	}
}

func (d *Daemon) reload() admin.ReloadResult {
	d.notify.reloading()
	defer func() { d.notify.ready(d.generation.Load().file) }()

	// Also if the reload is refused: logrotate has moved the file away.
	var warnings []string
	if err := d.access.Reopen(disk.Patience); err != nil {
		d.log.Error("access log is not opened anew", "error", err)
		warnings = append(warnings, "the access log is not opened anew: "+err.Error())
	}
	changes, err := d.reread()
	d.noteReload(err)
	if err != nil {
		d.log.Error("reload refused, the configuration stays as it was", "error", err)
		refused := refusal(err)
		refused.Warnings = warnings
		return refused
	}
	d.log.Info("reloaded", "changes", cmp.Or(strings.Join(changes, "; "), "none"))
	warnings = append(warnings, d.generation.Load().warnings()...) // the watch of certificates logs these
	warnings = append(warnings, d.warn()...)
	return admin.ReloadResult{OK: true, Changes: changes, Warnings: warnings}
}

// warn logs what is amiss with this process under the present configuration, and
// returns that.
func (d *Daemon) warn() []string {
	all := d.amiss()
	for _, text := range all {
		d.log.Warn(text)
	}
	return all
}

// amiss says what the present configuration asks for and this process cannot do, or has
// and the configuration does not use.
func (d *Daemon) amiss() []string {
	g := d.generation.Load()
	return append(g.notSilent(), g.unserved(d.data.opener)...)
}

func (d *Daemon) reread() ([]string, error) {
	if d.options.File != nil {
		return nil, errEmbedded
	}
	file, err := d.options.load()
	if err != nil {
		return nil, err
	}
	if err := enoughDescriptors(file, len(d.data.loops), d.others); err != nil {
		return nil, err
	}
	return d.apply(file)
}

// noteReload remembers how the reading of a configuration has ended.
func (d *Daemon) noteReload(err error) {
	info := admin.ReloadInfo{At: time.Now(), OK: err == nil}
	if err != nil {
		info.Error = err.Error()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastReload = info
}
