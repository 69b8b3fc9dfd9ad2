package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// tlsFirst measures how long a new TLS 1.3 connection waits for its first answer if the
// client leaves Nagle's algorithm on, as programs do by default outside Go: from the
// end of its handshake to the answer. The client's Finished is on the way then, and
// until it is acknowledged, the request waits in the client's own kernel.
type tlsFirst struct {
	addr        string
	connections int
}

func tlsFirstCommand(args []string, out io.Writer) error {
	var t tlsFirst
	flags := flag.NewFlagSet("tls-first", flag.ContinueOnError)
	flags.StringVar(&t.addr, "addr", "", "address that takes TLS and answers PING")
	flags.IntVar(&t.connections, "connections", 200, "one after the other")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if t.addr == "" || t.connections < 1 {
		return errors.New("-addr is needed; -connections must be positive")
	}
	times := make([]time.Duration, 0, t.connections)
	for i := range t.connections {
		d, err := t.connect()
		if err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
		times = append(times, d)
	}
	slices.Sort(times)
	_, err := fmt.Fprintf(out, "p50 %.1f\np90 %.1f\n", 1e6*quantile(times, 0.5).Seconds(), 1e6*quantile(times, 0.9).Seconds())
	return err
}

func (t tlsFirst) connect() (time.Duration, error) {
	raw, err := net.DialTimeout("tcp", t.addr, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	if err := raw.(*net.TCPConn).SetNoDelay(false); err != nil {
		return 0, err
	}
	if err := raw.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, err
	}
	c := tls.Client(raw, handshakeConfig())
	if err := c.Handshake(); err != nil {
		return 0, fmt.Errorf("handshake: %w", err)
	}
	start := time.Now()
	if err := ping(c); err != nil {
		return 0, err
	}
	return time.Since(start), c.Close()
}
