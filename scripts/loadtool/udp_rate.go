package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// udpRate is a closed-loop load of datagrams that are answered: so many clients,
// each with so many requests on the way. An answer makes room for the next
// request, and so does a request that was not answered in time.
type udpRate struct {
	addr        netip.AddrPort
	clients     int // sockets
	outstanding int // requests on the way on each
	size        int // of a request in bytes
	threads     int
	trains      bool          // requests leave joined, and answers are taken so
	warm        time.Duration // at first, not counted
	duration    time.Duration // counted
	timeout     time.Duration // after which a request is lost
}

// requestHeader is the client's number, the slot of its request and how often the
// slot was used: what tells an answer from a stray, a late or a mixed-up one.
const requestHeader = 12

func udpRateCommand(args []string, out io.Writer) error {
	u := udpRate{}
	flags := flag.NewFlagSet("udp-rate", flag.ContinueOnError)
	flags.TextVar(&u.addr, "addr", netip.AddrPort{}, "address that echoes")
	flags.IntVar(&u.clients, "clients", 4, "clients, each a socket")
	flags.IntVar(&u.outstanding, "outstanding", 32, "requests each has on the way")
	flags.IntVar(&u.size, "size", 64, "bytes of a request")
	flags.IntVar(&u.threads, "threads", 0, "threads that share the clients (0 = one for each core)")
	flags.BoolVar(&u.trains, "trains", false, "send and take joined datagrams (UDP_SEGMENT, UDP_GRO)")
	flags.DurationVar(&u.warm, "warm", 500*time.Millisecond, "load before anything is counted")
	flags.DurationVar(&u.duration, "duration", 5*time.Second, "load that counts")
	flags.DurationVar(&u.timeout, "timeout", time.Second, "a request not answered for so long is lost")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case !u.addr.IsValid() || u.clients < 1 || u.outstanding < 1 || u.duration <= 0 || u.timeout <= 0:
		return errors.New("-addr is needed; -clients, -outstanding, -duration and -timeout must be positive")
	case u.size < requestHeader || u.size > maxDatagram:
		return fmt.Errorf("-size must be %d to %d", requestHeader, maxDatagram)
	}
	r, err := u.run()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "rate %.1f\nrequests %d\nlost %d\np50 %.1f\np99 %.1f\n", float64(len(r.latencies))/u.duration.Seconds(),
		r.requests, r.lost, quantile(r.latencies, 0.5).Seconds()*1e6, quantile(r.latencies, 0.99).Seconds()*1e6)
	return err
}

// udpResult is what one thread, or all of them, counted.
type udpResult struct {
	requests  int             // all that left, also in the warm-up
	lost      int             // of those
	latencies []time.Duration // of answers that came while it counted, sorted at last
}

func (u udpRate) run() (udpResult, error) {
	threads := u.threads
	if threads < 1 {
		threads = runtime.NumCPU()
	}
	threads = min(threads, u.clients)
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	results := make([]udpResult, threads)
	var running sync.WaitGroup
	start := time.Now()
	for i := range threads {
		running.Go(func() {
			t := udpThread{udpRate: u, start: start}
			defer t.close()
			if err := t.run(ctx, i, threads); err != nil {
				stop(err)
			}
			results[i] = t.udpResult
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return udpResult{}, err
	}
	var all udpResult
	for _, r := range results {
		all.requests += r.requests
		all.lost += r.lost
		all.latencies = append(all.latencies, r.latencies...)
	}
	if len(all.latencies) == 0 {
		return udpResult{}, fmt.Errorf("none of %d requests was answered", all.requests)
	}
	slices.Sort(all.latencies)
	return all, nil
}

// slot is the place of one request that may be on the way.
type slot struct {
	sent time.Duration // since the start
	uses uint32        // of the slot, this request included
	busy bool
}

// udpClient is a socket and its slots.
type udpClient struct {
	fd     int
	number uint32
	slots  []slot
	free   []uint32 // slots without a request
}

// udpThread serves a share of the clients. One thread does everything for them:
// no scheduler stands between an answer and the next request.
type udpThread struct {
	udpRate
	udpResult
	start    time.Time
	poll     int
	clients  []*udpClient
	in, out  *batch
	awaiting int // requests on the way
}

func (t *udpThread) close() {
	for _, c := range t.clients {
		unix.Close(c.fd)
	}
	if t.poll > 0 {
		unix.Close(t.poll)
	}
}

// run is the life of thread number i of so many.
func (t *udpThread) run(ctx context.Context, i, threads int) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if t.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	// Room to spare: a datagram that is longer than a request is a wrong answer.
	room := t.size + 1
	if t.trains {
		room = maxDatagram
	}
	t.in, t.out = newBatch(room, false, t.trains), newBatch(t.size, false, t.trains)
	t.latencies = make([]time.Duration, 0, 1<<20)
	for n := i; n < t.udpRate.clients; n += threads {
		fd, err := connectUDP(t.addr, t.trains)
		if err != nil {
			return err
		}
		c := &udpClient{fd: fd, number: uint32(n), slots: make([]slot, t.outstanding)}
		t.clients = append(t.clients, c)
		for s := range t.outstanding {
			c.free = append(c.free, uint32(s))
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(len(t.clients) - 1)}
		if err := unix.EpollCtl(t.poll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
	for _, c := range t.clients {
		if err := t.ask(c); err != nil {
			return err
		}
	}
	return t.loop(ctx)
}

// tick is how often requests that are lost are looked for.
const tick = 50 * time.Millisecond

// loop ends when the time is over and every request is answered or lost.
func (t *udpThread) loop(ctx context.Context) error {
	events := make([]unix.EpollEvent, 64)
	for looked := time.Duration(0); ; {
		now := time.Since(t.start)
		if ctx.Err() != nil || now >= t.warm+t.duration && t.awaiting == 0 {
			return nil
		}
		if now-looked >= tick {
			looked = now
			if err := t.expire(now); err != nil {
				return err
			}
		}
		n, err := unix.EpollWait(t.poll, events, int(tick/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		for i := range max(n, 0) {
			c := t.clients[events[i].Fd]
			if err := t.answers(c); err != nil {
				return fmt.Errorf("client %d: %w", c.number, err)
			}
			if err := t.ask(c); err != nil {
				return fmt.Errorf("client %d: %w", c.number, err)
			}
		}
	}
}

// ask sends a request from every free slot, until the time is over.
func (t *udpThread) ask(c *udpClient) error {
	for len(c.free) > 0 {
		now := time.Since(t.start)
		if now >= t.warm+t.duration {
			return nil
		}
		n := min(len(c.free), batchSize)
		for i, s := range c.free[:n] {
			c.slots[s].uses++
			p := t.out.bufs[i]
			binary.LittleEndian.PutUint32(p, c.number)
			binary.LittleEndian.PutUint32(p[4:], s)
			binary.LittleEndian.PutUint32(p[8:], c.slots[s].uses)
		}
		sent, err := t.out.send(c.fd, n, t.size)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		for _, s := range c.free[:sent] {
			c.slots[s].sent, c.slots[s].busy = now, true
		}
		c.free = append(c.free[:0], c.free[sent:]...)
		t.requests += sent
		t.awaiting += sent
	}
	return nil
}

// answers takes what has come for c.
func (t *udpThread) answers(c *udpClient) error {
	n, err := t.in.receive(c.fd, unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	now := time.Since(t.start)
	for p := range t.in.datagrams(n) {
		if len(p) != t.size {
			return fmt.Errorf("an answer of %d bytes to requests of %d", len(p), t.size)
		}
		number, s, uses := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:])
		if number != c.number || int(s) >= len(c.slots) {
			return fmt.Errorf("an answer to client %d, slot %d", number, s)
		}
		if !c.slots[s].busy || c.slots[s].uses != uses {
			continue // it was given up as lost, or is a duplicate
		}
		c.slots[s].busy = false
		c.free = append(c.free, s)
		t.awaiting--
		if now >= t.warm && now < t.warm+t.duration {
			t.latencies = append(t.latencies, now-c.slots[s].sent)
		}
	}
	return nil
}

// expire gives up what has been on the way for too long, and asks anew.
func (t *udpThread) expire(now time.Duration) error {
	for _, c := range t.clients {
		for s := range c.slots {
			if c.slots[s].busy && now-c.slots[s].sent >= t.timeout {
				c.slots[s].busy = false
				c.free = append(c.free, uint32(s))
				t.lost++
				t.awaiting--
			}
		}
		if err := t.ask(c); err != nil {
			return fmt.Errorf("client %d: %w", c.number, err)
		}
	}
	return nil
}
