package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/loadgen"
	"github.com/poise-lb/poise/internal/plural"
)

// How often the daemon is asked, and how many of the answers are drawn: more
// often than four times a second numbers are hard to read.
const (
	askEvery  = 50 * time.Millisecond
	drawEvery = 5
)

// player plays the script on a stage and shows what happens.
type player struct {
	stage   *stage
	daemon  *runningDaemon
	balance string
	cycle   time.Duration
	once    bool // play the script once, else over and over
	scenes  []scene
	out     io.Writer
	screen  *screen // nil: a line for each scene instead
	as      style
	changes [][]string // by scene: the states the victim came to, and when

	start time.Time
	ended []string // lines about scenes that wait for the table to go
	last  admin.Status
	state string // the victim's in last; "" before the first
}

// play plays the script until ctx ends, which is no error, or the daemon does,
// which is.
func (p *player) play(ctx context.Context) error {
	if p.screen != nil {
		defer p.screen.close()
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	p.start = time.Now()
	for begin := p.start; ; {
		for i := range p.scenes {
			end := begin.Add(time.Duration(p.scenes[i].share * float64(p.cycle)))
			if err := p.playScene(ctx, tick.C, i, begin, end); err != nil || ctx.Err() != nil {
				return err
			}
			begin = end
		}
		if p.once {
			return nil
		}
	}
}

func (p *player) playScene(ctx context.Context, tick <-chan time.Time, i int, begin, end time.Time) error {
	p.changes[i] = nil
	if err := p.scenes[i].act(p.stage.backends[0]); err != nil {
		return err
	}
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-p.daemon.ended:
			return errors.New("the daemon has ended by itself")
		case <-tick:
		}
		if err := p.ask(ctx, i, begin); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		now := time.Now()
		over := !now.Before(end)
		f := p.frame(i, now, begin, end)
		if p.screen != nil && (over || n%drawEvery == 0) {
			if err := p.screen.draw(render(f, p.as)); err != nil {
				return err
			}
		}
		if over {
			return p.sceneEnded(f, begin)
		}
	}
}

// ask brings the status up to date and notes what has become of the victim.
func (p *player) ask(ctx context.Context, i int, begin time.Time) error {
	status, err := p.stage.status.Status(ctx, false)
	if err != nil {
		return err
	}
	p.last = status
	for _, b := range p.rows() {
		if b.Name != p.stage.backends[0].Name() || b.State == p.state {
			continue
		}
		if p.state != "" {
			p.changes[i] = append(p.changes[i], fmt.Sprintf("%s after %.1fs", b.State, time.Since(begin).Seconds()))
		}
		p.state = b.State
	}
	return nil
}

// rows are the backends of the only pool.
func (p *player) rows() []admin.Backend {
	if len(p.last.Pools) == 0 {
		return nil
	}
	return p.last.Pools[0].Backends
}

func (p *player) frame(i int, now, begin, end time.Time) frame {
	views, totals := p.stage.samples.last(now, begin)
	f := frame{
		balance: p.balance, listen: p.stage.listen, page: p.stage.page,
		elapsed: now.Sub(p.start),
		scene:   p.scenes[i], number: i + 1, of: len(p.scenes),
		progress: min(float64(now.Sub(begin))/float64(end.Sub(begin)), 1),
		all:      views[""], totals: totals,
	}
	for _, line := range p.daemon.log.last(logLines) {
		f.log = append(f.log, brief(line))
	}
	for _, b := range p.rows() {
		f.rows = append(f.rows, row{b.Name, b.State, b.Connections, views[b.Name]})
		f.retried += b.ConnectFailures
	}
	return f
}

// sceneEnded leaves a line about the scene: at once where there is no table.
func (p *player) sceneEnded(f frame, begin time.Time) error {
	line := sceneLine(f, begin.Sub(p.start))
	if p.screen == nil {
		_, err := fmt.Fprintln(p.out, line)
		return err
	}
	if p.once {
		p.ended = append(p.ended, line)
	}
	return nil
}

// sceneLine is the end of a scene in at most 80 columns.
func sceneLine(f frame, began time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1fs  %-31s", began.Seconds(), f.scene.caption)
	for _, r := range f.rows {
		what := fmt.Sprintf("%.0f/s", r.view.rate)
		if r.state != "up" {
			what = r.state
		}
		fmt.Fprintf(&b, "  %s %7s", r.name, what)
	}
	return b.String()
}

// finish prints the summary; the daemon still runs.
func (p *player) finish(ctx context.Context, res loadgen.Result) {
	if status, err := p.stage.status.Status(ctx, false); err == nil {
		p.last = status
	}
	var b strings.Builder
	if len(p.ended) > 0 {
		b.WriteString("\n" + strings.Join(p.ended, "\n") + "\n")
	}
	var retried uint64
	for _, s := range p.rows() {
		retried += s.ConnectFailures
	}
	fmt.Fprintf(&b, "\n%s in %.1fs, %d failed: p50 %s, p99 %s\n",
		plural.Of(res.Requests+res.Failed, "client connection"), res.Elapsed.Seconds(),
		res.Failed, orDash(res.Latency.P50), orDash(res.Latency.P99))
	fmt.Fprintf(&b, "%s retried on another backend\n", plural.Of(retried, "failed connect"))
	for i, changes := range p.changes {
		if len(changes) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", p.scenes[i].caption, strings.Join(changes, ", "))
		}
	}
	for _, s := range res.Backends {
		fmt.Fprintf(&b, "%s served %d (%.0f%%), p50 %s, p99 %s\n", s.Name, s.Requests,
			100*float64(s.Requests)/float64(res.Requests), loadgen.Short(s.Latency.P50), loadgen.Short(s.Latency.P99))
	}
	for _, e := range res.Errors {
		fmt.Fprintf(&b, "%s: %d, the first: %s\n", e.Kind, e.Count, e.First)
	}
	_, _ = io.WriteString(p.out, b.String())
}
