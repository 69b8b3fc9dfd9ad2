package main

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// udpEcho sends every datagram back, each thread from a socket of its own.
type udpEcho struct {
	listen  netip.AddrPort
	threads int
	trains  bool
	ready   func(netip.AddrPort) // with the real port; nil = nobody asks
}

func udpEchoCommand(ctx context.Context, args []string) error {
	e := udpEcho{}
	flags := flag.NewFlagSet("udp-echo", flag.ContinueOnError)
	flags.TextVar(&e.listen, "listen", netip.AddrPort{}, "address to answer on")
	flags.IntVar(&e.threads, "threads", runtime.NumCPU(), "threads, each with its own socket")
	flags.BoolVar(&e.trains, "trains", false, "take and send joined datagrams (UDP_GRO, UDP_SEGMENT)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !e.listen.IsValid() || e.threads < 1 {
		return errors.New("-listen is needed, and -threads must be positive")
	}
	return serve(ctx, e.run)
}

// run serves until ctx ends.
func (e udpEcho) run(ctx context.Context) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	at := e.listen
	for range e.threads {
		fd, err := bindUDP(at, e.trains)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
		if at, err = boundTo(fd); err != nil {
			return err
		}
	}
	if e.ready != nil {
		e.ready(at)
	}
	var done atomic.Bool
	var threads sync.WaitGroup
	for _, fd := range fds {
		threads.Go(func() { echoLoop(fd, e.trains, &done) })
	}
	<-ctx.Done()
	done.Store(true)
	for _, fd := range fds {
		// Wakes whoever waits in the socket, although it reports ENOTCONN.
		_ = unix.Shutdown(fd, unix.SHUT_RD)
	}
	threads.Wait()
	return nil
}

func echoLoop(fd int, trains bool, done *atomic.Bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := newBatch(maxDatagram, true, trains)
	for !done.Load() {
		// The first is waited for; what is there besides comes with it.
		n, err := b.receive(fd, unix.MSG_WAITFORONE)
		if err == nil && !done.Load() {
			b.echo(fd, n)
		}
		// An error is an earlier reply's (ICMP) and concerns nobody here.
	}
}
