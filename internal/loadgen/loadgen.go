// Package loadgen makes load and serves it: Run drives a TCP or UDP address with
// clients and reports throughput, errors and latency; a Backend, or for datagrams
// a DatagramBackend, is a small server whose behaviour can be changed while it
// runs. They are behind `poise bench` and `poise demo`, and in the tests.
//
//	b, _ := loadgen.NewBackend("db1", "", loadgen.Behaviour{Delay: time.Millisecond})
//	defer b.Close()
//	res, _ := loadgen.Run(ctx, loadgen.Options{Addr: b.Addr().String(), Clients: 50, Duration: time.Second})
//	fmt.Println(res.PerSecond(), res.Latency.P99)
//
// A request is one line; the reply is the server's name on a line and then the
// request again, or just the request (a plain echo server, which stays
// unnamed). Over UDP either is one datagram. Every reply is compared byte by byte,
// so a balancer that mixes up two clients is found out.
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options of one run. Addr, Clients, Size and Timeout are required.
type Options struct {
	Addr    string // host:port; a name is resolved once, before the start
	UDP     bool   // requests are datagrams, and a client's connection is a socket
	Clients int    // concurrent clients, >= 1

	// Duration is for how long requests are started and Requests how many at
	// most; the first to be reached ends the run. 0 means no such limit; without
	// either, the context ends it.
	Duration time.Duration
	Requests uint64

	// Rate is the number of requests a second, started on a fixed schedule
	// whatever the server does (open loop); a request's latency then counts from
	// the moment it was due, so that a stall shows on every request it delayed
	// and not only on those that were out (coordinated omission, G. Tene). With
	// 0 each client starts its next request when the last one ended (closed
	// loop) and the server's pace sets the rate.
	Rate float64

	// PerConnection is the number of requests a connection carries before the
	// client closes it; 0 means no limit. A request that fails is its last, too:
	// what is still to come for it must not pass for the reply to another.
	PerConnection int

	Size    int           // of a request in bytes, newline included: 1..MaxSize, over UDP 1..MaxDatagram
	Timeout time.Duration // of one request, its connect included; over UDP it is lost then

	// Observe, when set, is called with every request's end, from many
	// goroutines at once.
	Observe func(Sample)
}

// Sample is the end of one request.
type Sample struct {
	Backend string // "" when the server does not name itself, or with an error
	End     time.Time
	Latency time.Duration
	Err     error
}

// Validate reports everything that is wrong with o, one problem a line.
func (o Options) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if _, _, err := splitAddr(o.Addr); err != nil {
		errs = append(errs, err)
	}
	wrong(o.Clients < 1, "clients is %d: want at least 1", o.Clients)
	wrong(o.Duration < 0, "duration is %v: want 0 or more", o.Duration)
	wrong(math.IsNaN(o.Rate) || o.Rate < 0 || o.Rate > 1e9, "rate is %v a second: want 0 (as fast as replies come) to 1e9", o.Rate)
	wrong(o.PerConnection < 0, "requests per connection is %d: want 0 (no limit) or more", o.PerConnection)
	longest := MaxSize
	if o.UDP {
		longest = MaxDatagram
	}
	wrong(o.Size < 1 || o.Size > longest, "size is %d: want 1 to %d", o.Size, longest)
	wrong(o.Timeout <= 0, "timeout is %v: want more than 0", o.Timeout)
	return errors.Join(errs...)
}

// Run makes load until a limit of o is reached or ctx ends; neither cuts a
// request short, so it returns at most o.Timeout later. The error is about o
// alone: requests that fail are in the Result.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	addr, err := resolve(ctx, o.Addr)
	if err != nil {
		return Result{}, err
	}
	r := &run{Options: o, addr: addr, tally: newTally(), start: time.Now()}
	var clients sync.WaitGroup
	for range o.Clients {
		c := newClient(r)
		clients.Go(func() { c.live(ctx) })
	}
	clients.Wait()
	return r.result(time.Now()), nil
}

// splitAddr takes host:port apart. The port may be the name of a service of this host.
func splitAddr(addr string) (host string, port uint16, err error) {
	host, word, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: want host:port, such as 127.0.0.1:5432 or [::1]:5432", addr)
	}
	n, err := net.LookupPort("tcp", word)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("address %q: want a port from 1 to 65535, or the name of one", addr)
	}
	return host, uint16(n), nil
}

// Resolve looks the name in Addr up, if it is one, which Run does otherwise.
func (o Options) Resolve(ctx context.Context) (Options, error) {
	addr, err := resolve(ctx, o.Addr)
	o.Addr = addr
	return o, err
}

// resolve turns host:port into an address once: a lookup per connection would
// be part of the latency.
func resolve(ctx context.Context, addr string) (string, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = "localhost"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", addr, err)
	}
	// Of both families IPv4: "localhost" is ::1 too, where fewer servers listen.
	ip := ips[0]
	if i := slices.IndexFunc(ips, func(a netip.Addr) bool { return a.Unmap().Is4() }); i >= 0 {
		ip = ips[i]
	}
	return netip.AddrPortFrom(ip.Unmap(), port).String(), nil
}

// run is what the clients of one Run share.
type run struct {
	Options
	addr    string
	start   time.Time
	claimed atomic.Uint64 // places in the sequence of requests handed out
	sent    atomic.Uint64 // requests begun
	tally   *tally

	interrupted sync.Once     // ctx has ended
	cut         time.Duration // how far into the run; set by interrupted
}

// next waits until the calling client's next request is due. It returns the
// request's number and when its latency starts, or ok false when there is none
// left.
func (r *run) next(ctx context.Context) (seq uint64, from time.Time, ok bool) {
	defer func() {
		if ctx.Err() != nil {
			r.interrupted.Do(func() { r.cut = time.Since(r.start) })
		}
	}()
	from = time.Now()
	if ctx.Err() != nil || r.past(from) {
		return 0, from, false
	}
	seq = r.claimed.Add(1) - 1
	if r.Requests > 0 && seq >= r.Requests {
		return 0, from, false
	}
	if r.Rate > 0 {
		from = r.due(seq)
		if r.past(from) {
			sleepUntil(ctx, r.start.Add(r.Duration)) // so that a run takes its time
			return 0, from, false
		}
		if !sleepUntil(ctx, from) {
			return 0, from, false
		}
	}
	r.sent.Add(1)
	return seq, from, true
}

func (r *run) past(t time.Time) bool {
	return r.Duration > 0 && t.Sub(r.start) >= r.Duration
}

// due is when request seq of an open loop is to start.
func (r *run) due(seq uint64) time.Time {
	return r.start.Add(time.Duration(float64(seq) / r.Rate * float64(time.Second)))
}

func (r *run) result(end time.Time) Result {
	res := r.tally.result()
	res.Elapsed = end.Sub(r.start)
	if r.Rate > 0 {
		span := res.Elapsed
		if r.Duration > 0 {
			span = min(span, r.Duration)
		}
		if r.cut > 0 {
			span = min(span, r.cut)
		}
		// The epsilon keeps 0.3 s at 10/s from being 2.999… requests.
		due := uint64(math.Ceil(span.Seconds()*r.Rate - 1e-6))
		if r.Requests > 0 {
			due = min(due, r.Requests)
		}
		if sent := r.sent.Load(); due > sent {
			res.Unsent = due - sent
		}
	}
	return res
}

// sleepUntil reports false if ctx ended first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	return sleep(time.Until(at), ctx.Done())
}

// sleep waits for d and reports false if done closed meanwhile.
func sleep(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
