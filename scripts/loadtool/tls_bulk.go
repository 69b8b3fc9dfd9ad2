package main

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"time"
)

// tlsBulk is one TLS connection that carries as much as it can, one way, through
// whatever ends the TLS, to or from a stream server.
type tlsBulk struct {
	addr     string
	up       bool          // to the server; else from it
	verify   int64         // so many bytes are compared at first, before anything is counted
	warm     time.Duration // after that, not counted
	duration time.Duration // counted
}

// bulkConfig allows one cipher: AES-128 in GCM, which all libraries leave to the
// processor. Version 1.2, because 1.3 lets every server choose its own.
func bulkConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		MaxVersion:   tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		// In 1.2 the list also says which certificates a client can check.
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256},
		InsecureSkipVerify: true,
	}
}

func tlsBulkCommand(args []string, out io.Writer) error {
	var t tlsBulk
	flags := flag.NewFlagSet("tls-bulk", flag.ContinueOnError)
	flags.StringVar(&t.addr, "addr", "", "address that takes TLS and has a stream server behind it")
	flags.BoolVar(&t.up, "up", false, "send; without it, receive")
	flags.Int64Var(&t.verify, "verify", 32<<20, "bytes compared before anything is counted")
	flags.DurationVar(&t.warm, "warm", 500*time.Millisecond, "load after those, before anything is counted")
	flags.DurationVar(&t.duration, "duration", 5*time.Second, "load that counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if t.addr == "" || t.verify < 0 || t.duration <= 0 {
		return errors.New("-addr is needed; -duration must be positive, -verify not negative")
	}
	all, counted, err := t.run()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "rate %.4f\nbytes %d\n", float64(counted)*8/1e9/t.duration.Seconds(), all)
	return err
}

// run returns how many bytes were carried, and how many of them in the time that
// counts.
func (t tlsBulk) run() (all, counted int64, err error) {
	raw, err := net.DialTimeout("tcp", t.addr, 5*time.Second)
	if err != nil {
		return 0, 0, err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(t.warm + t.duration + 30*time.Second)); err != nil {
		return 0, 0, err
	}
	records := &records{Conn: raw}
	c := tls.Client(records, bulkConfig())
	if err := c.Handshake(); err != nil {
		return 0, 0, fmt.Errorf("handshake: %w", err)
	}
	if t.up {
		return t.send(c)
	}
	return t.receive(c, records)
}

// pieceBlocks is how many blocks are sent as one piece: 16 MB.
const pieceBlocks = 64

// send encrypts all it sends: a record cannot be used twice.
func (t tlsBulk) send(c *tls.Conn) (all, counted int64, err error) {
	if _, err := c.Write([]byte{streamSink}); err != nil {
		return 0, 0, err
	}
	block := streamPattern()
	length := binary.BigEndian.AppendUint64(nil, uint64(pieceBlocks*len(block)))
	var w *window
	for w == nil || !w.over() {
		if w == nil && all >= t.verify {
			w = newWindow(t.warm, t.duration)
		}
		if _, err := c.Write(length); err != nil {
			return 0, 0, err
		}
		for range pieceBlocks {
			if _, err := c.Write(block); err != nil {
				return 0, 0, err
			}
			all += int64(len(block))
			if w != nil {
				w.add(int64(len(block)))
			}
		}
	}
	if _, err := c.Write(make([]byte, 8)); err != nil {
		return 0, 0, err
	}
	var answer [8]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return 0, 0, fmt.Errorf("what the server received: %w", err)
	}
	if got := int64(binary.BigEndian.Uint64(answer[:])); got != all {
		return 0, 0, fmt.Errorf("the server received %d bytes of %d, or wrong ones", got, all)
	}
	return all, w.counted, nil
}

// receive decrypts and compares the first bytes. Of the others it only looks at
// the records' headers: it shares a core with the server, and would otherwise
// be what is measured.
func (t tlsBulk) receive(c *tls.Conn, r *records) (all, counted int64, err error) {
	if _, err := c.Write([]byte{streamSource}); err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 256<<10)
	for at := int64(0); at < t.verify; {
		n, err := c.Read(buf[:min(int64(len(buf)), t.verify-at)])
		if err != nil {
			return 0, 0, err
		}
		if i := patternEnd(buf[:n], at); i < n {
			return 0, 0, fmt.Errorf("byte %d is wrong", at+int64(i))
		}
		at += int64(n)
	}
	w := newWindow(t.warm, t.duration)
	for last := r.payload; !w.over(); last = r.payload {
		if _, err := r.Read(buf); err != nil {
			return 0, 0, err
		}
		if r.alert {
			return 0, 0, errors.New("an alert in place of data")
		}
		w.add(r.payload - last)
	}
	return r.payload, w.counted, nil
}

// window adds up what happens while it counts.
type window struct {
	start, end time.Time
	now        time.Time
	counted    int64
}

func newWindow(warm, duration time.Duration) *window {
	now := time.Now()
	return &window{start: now.Add(warm), end: now.Add(warm + duration), now: now}
}

func (w *window) add(n int64) {
	if w.now = time.Now(); w.now.After(w.start) && w.now.Before(w.end) {
		w.counted += n
	}
}

func (w *window) over() bool { return !w.now.Before(w.end) }

// records is a connection that watches the TLS records it receives.
type records struct {
	net.Conn
	header  [5]byte
	have    int   // bytes of header
	left    int   // bytes of the record after the header that are still to come
	payload int64 // bytes of application data, decrypted
	alert   bool  // one has come: no more data will
	err     error
}

// What a record of TLS 1.2 with AES-GCM has beside its payload: RFC 5288
// section 3; the header and its types: RFC 5246 section 6.2.
const (
	recordNonce       = 8
	recordTag         = 16
	recordAlert       = 21
	recordApplication = 23
	maxRecord         = 1<<14 + 2048
)

func (r *records) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.watch(p[:n])
	return n, errors.Join(err, r.err)
}

func (r *records) watch(p []byte) {
	for len(p) > 0 && r.err == nil {
		if r.left > 0 {
			n := min(r.left, len(p))
			r.left -= n
			p = p[n:]
			continue
		}
		n := copy(r.header[r.have:], p)
		r.have += n
		p = p[n:]
		if r.have < len(r.header) {
			return
		}
		r.have = 0
		r.left = int(binary.BigEndian.Uint16(r.header[3:]))
		switch kind := r.header[0]; {
		case r.header[1] != 3 || r.left == 0 || r.left > maxRecord || kind < 20 || kind > recordApplication:
			r.err = fmt.Errorf("% x is not the header of a TLS record", r.header)
		case kind == recordAlert:
			r.alert = true // which one, crypto/tls can tell
		case kind == recordApplication:
			r.payload += int64(r.left - recordNonce - recordTag)
		}
	}
}
