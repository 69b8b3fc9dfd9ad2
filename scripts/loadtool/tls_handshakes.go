package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tlsHandshakes is a closed-loop load of new TLS connections: a full handshake,
// one PING answered, and the end. Without the PING a client would be through
// with TLS 1.3 before the server has seen its last message.
type tlsHandshakes struct {
	addr     string
	clients  int           // at once
	warm     time.Duration // at first, not counted
	duration time.Duration // counted
}

// handshakeConfig leaves the server one choice in everything that costs time, so
// that all servers do the same work: TLS 1.3, X25519, no resumption. Nothing is
// verified against an authority; the certificate's own signature of the handshake
// is, as the protocol has it.
func handshakeConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		CurvePreferences:   []tls.CurveID{tls.X25519},
		ClientSessionCache: forgetful{},
		InsecureSkipVerify: true,
	}
}

// forgetful keeps no session. Without a cache the client would not even say that it
// could resume one, and some servers would send it no tickets and others
// would: each is to do what it does for any client.
type forgetful struct{}

func (forgetful) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (forgetful) Put(string, *tls.ClientSessionState)        {}

func tlsHandshakesCommand(args []string, out io.Writer) error {
	var t tlsHandshakes
	flags := flag.NewFlagSet("tls-handshakes", flag.ContinueOnError)
	flags.StringVar(&t.addr, "addr", "", "address that takes TLS and answers PING")
	flags.IntVar(&t.clients, "clients", 32, "connections at once")
	flags.DurationVar(&t.warm, "warm", 500*time.Millisecond, "load before anything is counted")
	flags.DurationVar(&t.duration, "duration", 5*time.Second, "load that counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if t.addr == "" || t.clients < 1 || t.duration <= 0 {
		return errors.New("-addr is needed; -clients and -duration must be positive")
	}
	r, err := t.run()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "rate %.1f\nconnections %d\n", float64(r.counted)/t.duration.Seconds(), r.all)
	return err
}

type handshakes struct {
	all     int64 // also in the warm-up
	counted int64
}

// run returns how many connections were made. The first that fails ends it: a
// number that leaves out failures would be too good.
func (t tlsHandshakes) run() (handshakes, error) {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	var all, counted atomic.Int64
	start := time.Now()
	var clients sync.WaitGroup
	for range t.clients {
		clients.Go(func() {
			config := handshakeConfig()
			for ctx.Err() == nil && time.Since(start) < t.warm+t.duration {
				if err := t.connect(config); err != nil {
					stop(fmt.Errorf("connection %d: %w", all.Load()+1, err))
					return
				}
				all.Add(1)
				if now := time.Since(start); now >= t.warm && now < t.warm+t.duration {
					counted.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if err := context.Cause(ctx); err != nil {
		return handshakes{}, err
	}
	if counted.Load() == 0 {
		return handshakes{}, errors.New("no connection was made while it counted")
	}
	return handshakes{all.Load(), counted.Load()}, nil
}

// connect is the life of one connection.
func (t tlsHandshakes) connect(config *tls.Config) error {
	raw, err := net.DialTimeout("tcp", t.addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	c := tls.Client(raw, config)
	if err := c.Handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if c.ConnectionState().DidResume {
		return errors.New("a session was resumed")
	}
	if err := ping(c); err != nil {
		return err
	}
	return c.Close()
}
