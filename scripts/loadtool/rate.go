package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// rate is an open-loop load: requests leave when their time has come, whether or
// not earlier ones were answered, and a request's latency counts from the moment
// it was due. A closed loop would send less while the proxy stalls and so hide
// the very latencies that are looked for ("coordinated omission", G. Tene).
//
// Gaps are exponential, from a fixed seed: the same bursts for every proxy.
type rate struct {
	addr     netip.AddrPort
	perSec   float64
	conns    int           // persistent connections, used in turn
	warm     time.Duration // at first, not counted
	duration time.Duration // counted
}

// request is what a connection sends, kept where sending allocates nothing.
var request = []byte(pingRequest)

// patience is how long answers may take after the last request.
const patience = 5 * time.Second

// depth is how many requests one connection may have on the way.
const depth = 1 << 14

func rateCommand(args []string, out io.Writer) error {
	var r rate
	flags := flag.NewFlagSet("rate", flag.ContinueOnError)
	flags.TextVar(&r.addr, "addr", netip.AddrPort{}, "address to send to")
	flags.Float64Var(&r.perSec, "rate", 0, "requests a second, over all connections")
	flags.IntVar(&r.conns, "conns", 50, "connections")
	flags.DurationVar(&r.warm, "warm", time.Second, "load before anything is counted")
	flags.DurationVar(&r.duration, "duration", 5*time.Second, "load that counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.perSec <= 0 || r.conns < 1 {
		return errors.New("-rate and -conns must be positive")
	}
	latencies, err := r.run()
	if err != nil {
		return err
	}
	if len(latencies) == 0 {
		return errors.New("no request was due: -rate times -duration is too small")
	}
	slices.Sort(latencies)
	for _, q := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}} {
		if _, err := fmt.Fprintf(out, "%s %.1f\n", q.name, quantile(latencies, q.p).Seconds()*1e6); err != nil {
			return err
		}
	}
	return nil
}

// quantile returns the smallest value that a share p of the sorted values does
// not exceed (nearest rank).
func quantile(sorted []time.Duration, p float64) time.Duration {
	i := int(p * float64(len(sorted)))
	return sorted[min(i, len(sorted)-1)]
}

// pipe is one connection: the due times of its unanswered requests, oldest first.
type pipe struct {
	fd         int
	due        [depth]time.Duration
	head, tail uint // tail - head are on the way
}

// run sends and returns the latencies of all requests due after the warm-up.
// One thread does everything and allocates nothing while it measures: neither a
// scheduler nor a collector stands between a request's time and the wire.
func (r rate) run() ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// By default timers may be 50 µs late, the order of what is measured.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("timer slack: %w", err)
	}
	pipes := make([]*pipe, r.conns)
	poll := make([]unix.PollFd, r.conns)
	for i := range pipes {
		fd, err := dial(r.addr)
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i+1, err)
		}
		defer unix.Close(fd)
		pipes[i] = &pipe{fd: fd}
		poll[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	runtime.GC()

	random := rand.New(rand.NewPCG(1, 2))
	end := r.warm + r.duration
	latencies := make([]time.Duration, 0, int(1.2*r.perSec*r.duration.Seconds())+1000)
	buf := make([]byte, 64<<10)
	start := time.Now()
	var next time.Duration
	for turn, open := 0, 0; ; {
		now := time.Since(start)
		for ; next <= now && next < end; turn++ {
			if err := pipes[turn%r.conns].send(next); err != nil {
				return nil, err
			}
			open++
			next += time.Duration(random.ExpFloat64() / r.perSec * float64(time.Second))
		}
		switch {
		case next >= end && open == 0:
			return latencies, nil
		case now > end+patience:
			return nil, fmt.Errorf("%d requests still unanswered %v after the last", open, patience)
		}
		wait := 10 * time.Millisecond // to look at the patience
		if next < end {
			wait = max(0, next-time.Since(start))
		}
		timeout := unix.NsecToTimespec(int64(wait))
		n, err := unix.Ppoll(poll, &timeout, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("poll: %w", err)
		}
		for i := 0; n > 0 && i < len(poll); i++ {
			if poll[i].Revents == 0 {
				continue
			}
			n--
			p := pipes[i]
			answered, err := p.receive(buf)
			if err != nil {
				return nil, fmt.Errorf("connection %d: %w", i+1, err)
			}
			now := time.Since(start)
			for ; answered > 0; answered-- {
				due := p.due[p.head%depth]
				p.head++
				open--
				if due >= r.warm {
					latencies = append(latencies, now-due)
				}
			}
		}
	}
}

func (p *pipe) send(due time.Duration) error {
	if p.tail-p.head == depth {
		return fmt.Errorf("%d requests unanswered on one connection: it does not keep up", depth)
	}
	p.due[p.tail%depth] = due
	p.tail++
	n, err := unix.Write(p.fd, request)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if n != len(request) {
		return fmt.Errorf("send: only %d of %d bytes taken", n, len(request))
	}
	return nil
}

// receive returns how many answers came in.
func (p *pipe) receive(buf []byte) (answered uint, err error) {
	n, err := unix.Read(p.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("receive: %w", err)
	case n == 0:
		return 0, errors.New("closed by the other side")
	}
	answered = uint(bytes.Count(buf[:n], []byte{'\n'}))
	if answered > p.tail-p.head {
		return 0, errors.New("more answers than requests")
	}
	return answered, nil
}

// dial returns a connected, non-blocking socket without Nagle's delay.
func dial(addr netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(family(addr), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err = unix.Connect(fd, sockaddr(addr)); err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return fd, nil
}
