package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/loadgen"
)

func demoCommand() *cobra.Command {
	var (
		balance  string
		duration time.Duration
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a whole system on loopback: backends, the balancer, load, a live table",
		Long: `Start three backends, a real daemon in front of them and steady load, all on free
ports of the loopback interface, and show what happens while one backend is
slowed, killed and revived. The configuration is printed first; it is a real one.

On a terminal a live table shows it until you interrupt it. Without one, or with
--duration, which plays the script once in that time, each scene leaves a line.
The exit status is 0 only if not one client connection failed.`,
		Example: `  poise demo
  poise demo --balance round-robin
  poise demo --duration 10s`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("duration") && duration < demoLeast:
				return fmt.Errorf("--duration %v: want at least %v, or there is nothing to see", duration, demoLeast)
			case evenly[balance] == "":
				return fmt.Errorf("--balance %q: want one of %s", balance, demoBalances())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			// After the first signal the next one has its default effect again.
			defer context.AfterFunc(ctx, stop)()
			return runDemo(ctx, cmd.OutOrStdout(), balance, duration, demoScript(balance))
		},
	}
	cmd.Flags().StringVar(&balance, "balance", "least-conn", "the pool's `algorithm`: "+demoBalances())
	cmd.Flags().DurationVar(&duration, "duration", 0, "play the script once in so long (0 = over and over until interrupted)")
	return cmd
}

// stage is everything that runs in a demonstration.
type stage struct {
	config   string // the daemon's, as YAML
	page     string // the status page's address
	listen   string // where clients connect
	backends []*loadgen.Backend
	samples  samples
	status   *admin.Client
	closers  []func()
}

// runDemo sets the stage, plays the script, once if duration is set, and clears
// up. The end of ctx ends it in order.
func runDemo(ctx context.Context, out io.Writer, balance string, duration time.Duration, script []scene) error {
	cycle := duration
	if cycle == 0 {
		cycle = demoCycle
	}
	s, err := setStage(balance, cycle)
	if err != nil {
		return err
	}
	defer s.clear()
	// None of the parts ends with ctx: the load has to end before the daemon
	// does, and the daemon before the backends do.
	living := context.WithoutCancel(ctx)
	d, err := startDemoDaemon(living, s.config)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# This is what it runs on: poise run -c FILE\n%s\n", s.config)

	loading, stopLoad := context.WithCancel(living)
	defer stopLoad()
	loaded := make(chan loadgen.Result, 1)
	go func() { loaded <- s.load(loading) }()
	p := player{
		stage: s, daemon: d, balance: balance, cycle: cycle, once: duration > 0,
		scenes: script, out: out, screen: newScreen(out),
		as: plain, changes: make([][]string, len(script)),
	}
	if p.screen != nil && os.Getenv("NO_COLOR") == "" { // https://no-color.org
		p.as = coloured
	}
	playErr := p.play(ctx)
	stopLoad()
	result := <-loaded
	p.finish(living, result)
	err = errors.Join(playErr, d.stop())
	if result.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d client connections failed", result.Failed, result.Failed+result.Requests))
	}
	return err
}

func setStage(balance string, cycle time.Duration) (_ *stage, err error) {
	s := &stage{}
	s.samples.window = min(max(cycle/15, 500*time.Millisecond), 2*time.Second)
	defer func() {
		if err != nil {
			s.clear()
		}
	}()
	// No folder of its own: it would be gone when somebody runs a copy.
	socket := filepath.Join(os.TempDir(), fmt.Sprintf("poise-demo-%d-%08x.sock", os.Getpid(), rand.Uint32()))
	s.closers = append(s.closers, func() { _ = os.Remove(socket) })
	s.status = admin.NewClient(socket)
	for _, name := range []string{"db1", "db2", "db3"} {
		b, err := loadgen.NewBackend(name, "", loadgen.Behaviour{Delay: demoDelay})
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, b.Close)
		s.backends = append(s.backends, b)
	}
	// The daemon's own ports are free and stay so until it listens there.
	http, err := loadgen.Reserve("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, http.Close)
	listen, err := loadgen.Reserve("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, listen.Close)
	s.page, s.listen = http.Addr().String(), listen.Addr().String()
	s.config = demoConfig(balance, socket, http.Addr(), listen.Addr(), s.backends, cycle)
	return s, nil
}

func (s *stage) clear() {
	for _, closer := range slices.Backward(s.closers) {
		closer()
	}
	s.closers = nil
}

// load makes the steady load until ctx ends. There are enough clients for all to
// wait for the slowed backend and the schedule to be kept.
func (s *stage) load(ctx context.Context) loadgen.Result {
	res, err := loadgen.Run(ctx, loadgen.Options{
		Addr:          s.listen,
		Clients:       200,
		Rate:          demoRate,
		PerConnection: 1,
		Size:          64,
		Timeout:       10 * time.Second,
		Observe:       s.samples.observe,
	})
	if err != nil {
		res.Failed++
		res.Errors = append(res.Errors, loadgen.ErrorResult{Kind: loadgen.Other, Count: 1, First: err.Error()})
	}
	return res
}
