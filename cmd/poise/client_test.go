package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A client is one connection to Named backends through the balancer.
type client struct {
	net.Conn
	r *bufio.Reader
}

// dial connects a client for the length of the test, at most.
func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := tryDial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func tryDial(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &client{conn, bufio.NewReader(conn)}, nil
}

// Ask sends a line and returns the name of the backend that answered it.
func (c *client) Ask() (string, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	name, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if line, err := c.r.ReadString('\n'); err != nil || line != "hello\n" {
		return "", fmt.Errorf("the echo was %q, %w", line, err)
	}
	return strings.TrimSuffix(name, "\n"), nil
}

// MustAsk is Ask that may not fail.
func (c *client) MustAsk(t testing.TB) string {
	t.Helper()
	name, err := c.Ask()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// ask makes one short connection and returns who answered.
func ask(addr string) (string, error) {
	c, err := tryDial(addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Ask()
}
