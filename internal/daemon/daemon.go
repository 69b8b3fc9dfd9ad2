// Package daemon owns everything that runs: it starts it from a configuration,
// reloads it without losing a connection, and stops it in the right order.
//
//	err := daemon.Run(ctx, daemon.Options{Path: "/etc/poise/poise.yaml", Stdout: os.Stdout, Stderr: os.Stderr})
//
// This is where the arrows meet: data path, checks, admin interface and logs do
// not know each other, and the daemon carries what one has to say to the other.
// What a configuration is made of is a generation, immutable behind one pointer.
// Start is the first reload: there is one way from a configuration to a running
// system (plan, prepare all that can fail, commit what cannot), and one to take.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poise-lb/poise/internal/accesslog"
	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/control"
	"github.com/poise-lb/poise/internal/metrics"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/disk"
	"github.com/poise-lb/poise/l4/sock"
)

// Options say what to run. Either Path or File is set.
type Options struct {
	Path string       // the configuration file, read again at each reload
	File *config.File // a configuration that is never reloaded

	Stdout  io.Writer // for the access log where it is "stdout"
	Stderr  io.Writer // for the log
	Version string

	// Reloads asks for reloads, Stops for the end; a second one stops now. They may be
	// nil: the end of Run's context stops as well.
	Reloads, Stops <-chan os.Signal

	// Standalone means that the process is the daemon's own: it gives up
	// privileges and tells the service manager how it is.
	Standalone bool

	// Ready is called once everything runs. It may be nil.
	Ready func(*Daemon)
}

// Daemon is a running system. Its methods are safe for concurrent use.
type Daemon struct {
	// Set once.
	options Options
	started time.Time
	workers int // as configured when it started; 0 = one per CPU
	others  int // descriptors that were open before there was anything of this
	log     *slog.Logger
	logging *logging
	data    datapath
	control *control.Control
	access  *accesslog.Log
	metrics http.Handler // one for life: it remembers what objects that are gone have counted
	reloads *reloads
	notify  notifier

	recent     recent
	phase      atomic.Int32 // of phases
	generation atomic.Pointer[generation]
	certState  atomic.Pointer[cert.State] // nil until the files were looked at

	// committing is held while a configuration takes effect, which waits for nothing:
	// a stop and it take turns.
	committing sync.Mutex

	// applying is held while a configuration is read, prepared and committed, which may
	// take as long as a disk does; others only try to get it. It guards what only that
	// changes.
	applying     sync.Mutex
	accessTarget string
	accessFormat string
	socket, http endpoint

	mu         sync.Mutex // guards the following
	lastReload admin.ReloadInfo

	background sync.WaitGroup // ends with die
	reloading  sync.WaitGroup // ends with reloads.close, or when a stuck disk lets go
	die        context.CancelFunc
}

// endpoint is where an admin server listens.
type endpoint struct {
	addr   string // as configured; "" = off
	server *admin.Server
}

// phases of a daemon's life, in order.
const (
	starting = iota
	running
	stopping
)

// Run starts the system, blocks until it has stopped, and leaves nothing behind,
// whether it could start or not. A configuration that is invalid is an error of
// type config.Problems.
func Run(ctx context.Context, o Options) error {
	var notDropped error
	if o.Standalone {
		// Before the configuration is read: what can be read now can be read at
		// the next reload too.
		notDropped = keepOnly(mayBind | mayForge)
	}
	d, err := start(o)
	if err != nil {
		return explainDenied(o, err)
	}
	if notDropped != nil {
		d.log.Debug("privileges were not dropped", "reason", notDropped)
	}
	defer d.logging.close()
	if o.Ready != nil {
		o.Ready(d)
	}
	d.serve(ctx)
	return nil
}

func (o *Options) load() (*config.File, error) {
	if o.File != nil {
		return o.File, nil
	}
	return config.Load(o.Path)
}

// workers is the number of event loops. One per usable CPU means those this
// process may use: its affinity and its cgroup's quota are taken into account.
func workers(f *config.File) int {
	if f.Runtime.Workers > 0 {
		return f.Runtime.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// start brings everything up. On error nothing of it is left.
func start(o Options) (*Daemon, error) {
	file, err := o.load()
	if err != nil {
		return nil, err
	}
	if o.Standalone && !slices.ContainsFunc(file.Pools, func(p config.Pool) bool { return p.Transparent }) &&
		!slices.ContainsFunc(file.Services, func(s config.Service) bool { return s.Admit.Silent }) {
		_ = keepOnly(mayBind) // Run tells of what stands in the way
	}
	n, others := workers(file), sock.OpenDescriptors()
	if err := enoughDescriptors(file, n, others); err != nil {
		return nil, err
	}
	living, die := context.WithCancel(context.Background())
	d := &Daemon{
		die:     die,
		options: o,
		started: time.Now(),
		workers: file.Runtime.Workers,
		others:  others,
		logging: newLogging(o.Stderr),
		reloads: newReloads(),
	}
	d.log = d.logging.logger()
	d.logging.set(file.Log)
	if o.Standalone {
		d.notify = notifier{d.log}
		var unusable []string
		d.data.opener, unusable = passedSockets()
		for _, text := range unusable {
			d.log.Warn(text)
		}
	}
	d.generation.Store(&generation{file: &config.File{}})

	d.control = control.New(d.log, &d.data)
	if err := d.data.start(n, d.log, d.control, func(s *l4.Session) { d.access.Record(s) }); err != nil {
		die()
		d.control.Close()
		d.logging.close()
		return nil, fmt.Errorf("event loops: %w", err)
	}
	d.metrics = metrics.Handler(source{d}, o.Version, d.log)
	d.access = accesslog.New(nil, accesslog.Poise, accesslog.DefaultQueue, d.log)
	d.control.Load(file.Admin.State)
	if _, err := d.apply(file); err != nil {
		d.close()
		return nil, err
	}
	d.noteReload(nil)
	d.phase.Store(running)
	d.reloading.Go(d.reloader)
	d.background.Go(func() { d.control.Run(living) })
	d.background.Go(func() { cert.Watch(living, d.certificates, d.log, func(s cert.State) { d.certState.Store(&s) }) })
	d.background.Go(func() { d.keepRecent(living) })
	d.background.Go(func() { d.feedWatchdog(living, d.notify) })
	d.log.Info("started", "version", o.Version, "pid", os.Getpid(), "config", o.Path,
		"services", len(file.Services), "pools", len(file.Pools),
		"workers", n, "descriptor_limit", sock.DescriptorLimit())
	d.warn()
	d.notify.ready(file)
	return d, nil
}

// close takes everything down, the log last.
func (d *Daemon) close() {
	d.takeDown()
	d.logging.close()
}

// takeDown takes down all but the log, in an order in which nothing speaks to what
// has gone.
func (d *Daemon) takeDown() {
	d.phase.Store(stopping) // a reload that is stuck until later takes no effect
	d.reloads.close()
	d.die()
	d.background.Wait()
	patience, cancel := context.WithTimeout(context.Background(), disk.Patience)
	defer cancel()
	await(patience, d.reloading.Wait)
	for _, e := range []endpoint{d.socket, d.http} {
		e.close(d.log)
	}
	d.control.Close()
	d.data.close()
	if err := d.access.Close(lastLines); err != nil {
		d.log.Error("access log", "error", err)
	}
}

func (e endpoint) close(log *slog.Logger) {
	if e.server == nil {
		return
	}
	if err := e.server.Close(); err != nil {
		log.Warn("admin interface did not close", "address", e.addr, "error", err)
	}
}

// Ready returns nil while new connections should be sent here.
func (d *Daemon) Ready() error {
	switch d.phase.Load() {
	case starting:
		return errors.New("starting")
	case stopping:
		return errors.New("stopping")
	}
	return nil
}
