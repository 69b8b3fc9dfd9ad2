package rig

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// ClientHello returns what a client of crypto/tls begins with, one record.
func ClientHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	var b recorder
	if err := tls.Client(&b, config).Handshake(); !errors.Is(err, errRecorded) {
		t.Fatal(err)
	}
	return b.written
}

// A recorder is a connection that takes what is written and ends.
type recorder struct {
	net.Conn
	written []byte
}

var errRecorded = errors.New("recorded")

func (r *recorder) Write(b []byte) (int, error) {
	r.written = append(r.written, b...)
	return len(b), nil
}

func (r *recorder) Read([]byte) (int, error) { return 0, errRecorded }

// HelloFor is the ClientHello for a name as it is, which crypto/tls would not ask for
// if it is an address or ends in a dot.
func HelloFor(t testing.TB, name string, alpn ...string) []byte {
	t.Helper()
	if name == "" {
		return ClientHello(t, &tls.Config{InsecureSkipVerify: true, NextProtos: alpn})
	}
	stand := strings.Repeat("x", len(name))
	b := ClientHello(t, &tls.Config{ServerName: stand, NextProtos: alpn})
	if bytes.Count(b, []byte(stand)) != 1 {
		t.Fatal("the name is not in the ClientHello")
	}
	return bytes.Replace(b, []byte(stand), []byte(name), 1)
}

// StartNamed starts a backend that answers a whole connection with its name and the digest
// of what it got.
func StartNamed(t testing.TB, name string) (addr string) {
	t.Helper()
	return Serve(t, func(c *net.TCPConn, _ <-chan struct{}) {
		got, err := io.ReadAll(c)
		if err == nil {
			fmt.Fprintf(c, "%s %x", name, sha256.Sum256(got))
		}
	})
}

// Reaches sends bytes, whole, and returns the name of the backend that got all of them
// and nothing else; "" if the connection was closed.
func Reaches(t testing.TB, listen string, b []byte) string {
	t.Helper()
	r := Say(t, Connect(t, listen), 0, string(b))
	if r.Got == "" && !IsTimeout(r.Err) {
		return ""
	}
	name, digest, _ := strings.Cut(r.Got, " ")
	if want := fmt.Sprintf("%x", sha256.Sum256(b)); r.Err != nil || digest != want {
		t.Errorf("%s got something else: %q, %v", name, r.Got, r.Err)
	}
	return name
}
