package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// hold asks what one idle connection costs a proxy.
type hold struct {
	addr   string
	pid    int           // of the proxy
	warm   int           // connections opened before the first weighing
	conns  int           // connections between the first and the second
	settle time.Duration // quiet before each weighing
}

func holdCommand(args []string, out io.Writer) error {
	var h hold
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	flags.StringVar(&h.addr, "addr", "", "proxy's address")
	flags.IntVar(&h.pid, "pid", 0, "proxy's process")
	flags.IntVar(&h.warm, "warm", 200, "connections opened, and held, before the first weighing")
	flags.IntVar(&h.conns, "conns", 4000, "connections to weigh")
	flags.DurationVar(&h.settle, "settle", 3*time.Second, "quiet before each weighing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if h.conns < 1 || h.warm < 0 {
		return errors.New("-conns must be 1 or more, -warm not negative")
	}
	each, err := h.run()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "anon %d\nrss %d\n", each.anon, each.rss)
	return err
}

// run returns how much the proxy grew for each connection, in bytes.
func (h hold) run() (each memory, err error) {
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	grow := func(n int) (memory, error) {
		for range n {
			c, err := net.DialTimeout("tcp", h.addr, 5*time.Second)
			if err != nil {
				return memory{}, fmt.Errorf("connection %d: %w", len(held)+1, err)
			}
			held = append(held, c)
			// One exchange each: the proxy has connected, and whatever it allocates
			// at the first byte is there.
			if err := ping(c); err != nil {
				return memory{}, fmt.Errorf("connection %d: %w", len(held), err)
			}
		}
		time.Sleep(h.settle)
		return readMemory(h.pid)
	}
	before, err := grow(h.warm)
	if err != nil {
		return memory{}, err
	}
	after, err := grow(h.conns)
	if err != nil {
		return memory{}, err
	}
	// All must still be alive, or what was weighed is not what was asked.
	for i, c := range held {
		if err := ping(c); err != nil {
			return memory{}, fmt.Errorf("connection %d after holding it: %w", i+1, err)
		}
	}
	n := int64(h.conns)
	return memory{rss: (after.rss - before.rss) / n, anon: (after.anon - before.anon) / n}, nil
}

const (
	pingRequest = "PING\r\n"
	pingAnswer  = "+PONG\r\n"
)

// ping exchanges one PING, within 5 s.
func ping(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, pingRequest); err != nil {
		return err
	}
	var b [len(pingAnswer)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("no answer to PING within 5 s")
		}
		return err
	}
	if string(b[:]) != pingAnswer {
		return fmt.Errorf("answer to PING: %q", b)
	}
	return nil
}
