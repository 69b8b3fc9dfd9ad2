package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// udpBlast is a load of datagrams that nobody answers, and the sink they arrive
// at. One thread is both: whenever it has sent a batch it takes out what has
// arrived, so that its own queue never overflows, and it knows at every moment
// how many are on the way.
//
// Without a rate it keeps a window of them on the way, like a transport protocol:
// what is delivered then is the most that can be, and a proxy's queue does
// not overflow merely because it is asked for more than it can do. With a rate
// datagrams leave when they are due, whatever becomes of them.
type udpBlast struct {
	addr     netip.AddrPort
	sink     netip.AddrPort // where to receive what addr forwards
	sockets  int            // senders
	size     int            // of a datagram in bytes
	trains   bool           // they leave joined, and are taken so
	window   int            // the most on the way; not used with a rate
	perSec   float64        // 0 = as the window allows
	warm     time.Duration  // at first, not counted
	duration time.Duration  // counted
}

// gone is how long none may arrive until those on the way are counted as lost.
const gone = 100 * time.Millisecond

func udpBlastCommand(args []string, out io.Writer) error {
	u := udpBlast{}
	flags := flag.NewFlagSet("udp-blast", flag.ContinueOnError)
	flags.TextVar(&u.addr, "addr", netip.AddrPort{}, "address to send to")
	flags.TextVar(&u.sink, "sink", netip.AddrPort{}, "address to receive on")
	flags.IntVar(&u.sockets, "sockets", 8, "senders, used in turn")
	flags.IntVar(&u.size, "size", 64, "bytes of a datagram")
	flags.BoolVar(&u.trains, "trains", false, "send and take joined datagrams (UDP_SEGMENT, UDP_GRO)")
	flags.IntVar(&u.window, "window", 128, "datagrams on the way, without -rate")
	flags.Float64Var(&u.perSec, "rate", 0, "datagrams a second, delivered or not (0 = as the window allows)")
	flags.DurationVar(&u.warm, "warm", 500*time.Millisecond, "load before anything is counted")
	flags.DurationVar(&u.duration, "duration", 5*time.Second, "load that counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case !u.addr.IsValid() || !u.sink.IsValid() || u.sockets < 1 || u.window < 1 || u.duration <= 0:
		return errors.New("-addr and -sink are needed; -sockets, -window and -duration must be positive")
	case u.size < 1 || u.size > maxDatagram:
		return fmt.Errorf("-size must be 1 to %d", maxDatagram)
	case u.perSec < 0 || math.IsNaN(u.perSec):
		return errors.New("-rate must not be negative")
	}
	r, err := u.run()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "rate %.1f\nsent %d\ndelivered %d\nlost %d\n",
		float64(r.counted)/u.duration.Seconds(), r.sent, r.delivered, r.lost)
	return err
}

// blast is the state of a run.
type blast struct {
	udpBlast
	start     time.Time
	sink      int
	senders   []int
	turn      int // the sender whose turn it is
	in, out   *batch
	sent      int // all, also in the warm-up
	delivered int // of those
	lost      int // of those
	counted   int // delivered while it counted
	progress  time.Duration
}

func (u udpBlast) run() (*blast, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	room := u.size + 1 // to spare: one that is longer than what left is wrong
	if u.trains {
		room = maxDatagram
	}
	b := &blast{udpBlast: u, in: newBatch(room, false, u.trains), out: newBatch(u.size, false, u.trains)}
	var err error
	if b.sink, err = bindUDP(u.sink, u.trains); err != nil {
		return nil, err
	}
	defer unix.Close(b.sink)
	for range u.sockets {
		fd, err := connectUDP(u.addr, u.trains)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		b.senders = append(b.senders, fd)
	}
	b.start = time.Now()
	if err := b.loop(); err != nil {
		return nil, err
	}
	if b.counted == 0 {
		return nil, fmt.Errorf("none of %d datagrams arrived", b.sent)
	}
	return b, nil
}

func (b *blast) onTheWay() int { return b.sent - b.delivered - b.lost }

func (b *blast) loop() error {
	end := b.warm + b.duration
	for {
		now := time.Since(b.start)
		if err := b.drain(now); err != nil {
			return err
		}
		if now >= end && b.onTheWay() == 0 {
			return nil
		}
		n := 0
		if now < end {
			n = b.room(now)
		}
		if n > 0 {
			if err := b.send(n); err != nil {
				return err
			}
			continue
		}
		if err := b.wait(); err != nil {
			return err
		}
		// With a rate too: those that nobody waits for any more must be counted.
		if now = time.Since(b.start); now-b.progress > gone {
			if err := b.drain(now); err != nil {
				return err
			}
			if now-b.progress > gone {
				b.lost, b.progress = b.lost+b.onTheWay(), now
			}
		}
	}
}

// room returns how many datagrams may leave now: a batch, or none.
func (b *blast) room(now time.Duration) int {
	if b.perSec > 0 {
		due := int(now.Seconds() * b.perSec)
		return min(max(due-b.sent, 0), batchSize)
	}
	// Not one by one as they arrive: a batch costs little more than one.
	size := max(min(batchSize, b.window/4), 1)
	if b.window-b.onTheWay() >= size {
		return size
	}
	return 0
}

// send lets n leave from the next sender.
func (b *blast) send(n int) error {
	if b.onTheWay() == 0 {
		b.progress = time.Since(b.start) // the wait for an arrival begins
	}
	fd := b.senders[b.turn%len(b.senders)]
	b.turn++
	sent, err := b.out.send(fd, n, b.size)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("send: %w", err)
	}
	b.sent += sent
	return nil
}

// drain takes out all that has arrived.
func (b *blast) drain(now time.Duration) error {
	for {
		n, err := b.in.receive(b.sink, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		arrived := 0
		for p := range b.in.datagrams(n) {
			if len(p) != b.size {
				return fmt.Errorf("a datagram of %d bytes arrived, they left with %d", len(p), b.size)
			}
			arrived++
		}
		b.delivered += arrived
		b.progress = now
		if now >= b.warm && now < b.warm+b.duration {
			b.counted += arrived
		}
		// Some that were given up do arrive.
		if over := b.delivered + b.lost - b.sent; over > 0 {
			b.lost -= over
		}
		if b.lost < 0 {
			return fmt.Errorf("%d datagrams left and %d arrived", b.sent, b.delivered)
		}
		if n < batchSize {
			return nil
		}
	}
}

// wait sleeps until something arrives or may leave.
func (b *blast) wait() error {
	pause := 5 * time.Millisecond
	if b.perSec > 0 {
		due := time.Duration(float64(b.sent+1) / b.perSec * float64(time.Second))
		pause = min(pause, max(0, due-time.Since(b.start)))
	}
	timeout := unix.NsecToTimespec(int64(pause))
	poll := []unix.PollFd{{Fd: int32(b.sink), Events: unix.POLLIN}}
	if _, err := unix.Ppoll(poll, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}
