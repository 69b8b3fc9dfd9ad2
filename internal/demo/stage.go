package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/loadgen"
)

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
		b, err := loadgen.NewBackend(name, "", loadgen.Behaviour{Delay: usualDelay})
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
	s.config = configuration(balance, socket, http.Addr(), listen.Addr(), s.backends, cycle)
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
		Rate:          loadRate,
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
