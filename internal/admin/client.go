package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long a client waits for an answer. A probe decides about a VIP, so that
// one must know soon that a process hangs.
const (
	askTimeout   = 5 * time.Second
	probeTimeout = 1500 * time.Millisecond
)

// maxAnswer bounds what a client reads: some 100 000 backends.
const maxAnswer = 64 << 20

// A Client speaks to a running daemon through its control socket. Its errors
// are for people: they say what is wrong and what to do.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the daemon whose control socket is at path. It
// connects anew for each request.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// Status asks for the status. With withRates it asks again after a second if the
// first answer has no rates, which take two looks.
func (c *Client) Status(ctx context.Context, withRates bool) (Status, error) {
	var s Status
	if err := c.ask(ctx, http.MethodGet, "/v1/status", askTimeout, &s); err != nil || !withRates || s.RatesOver > 0 {
		return s, err
	}
	select {
	case <-time.After(leastWindow + 50*time.Millisecond):
	case <-ctx.Done():
		return s, nil // without rates, then
	}
	var again Status
	if err := c.ask(ctx, http.MethodGet, "/v1/status", askTimeout, &again); err != nil {
		return s, err
	}
	return again, nil
}

// Reload asks for a reload and waits for it. A refused one is no error: see the
// result.
func (c *Client) Reload(ctx context.Context) (ReloadResult, error) {
	var res ReloadResult
	err := c.ask(ctx, http.MethodPost, "/v1/reload", reloadTimeout, &res)
	return res, err
}

// Ready returns nil if the daemon wants new connections, else why not. It takes
// at most 1.5 s.
func (c *Client) Ready(ctx context.Context) error {
	return c.ask(ctx, http.MethodGet, "/readyz", probeTimeout, nil)
}

// Live returns nil if the daemon does its work, else what is wrong. It takes at
// most 1.5 s.
func (c *Client) Live(ctx context.Context) error {
	return c.ask(ctx, http.MethodGet, "/livez", probeTimeout, nil)
}

// ask makes one request and decodes the answer into v, unless that is nil.
func (c *Client) ask(ctx context.Context, method, path string, limit time.Duration, v any) error {
	a, err := c.exchange(ctx, method, path, limit, nil)
	switch {
	case err != nil:
		return err
	case v != nil && a.isJSON:
		return c.decode(a, v)
	case a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed || v != nil && a.status == http.StatusOK:
		return c.misunderstood(method, path)
	case a.status != http.StatusOK:
		return errors.New(strings.TrimSpace(string(a.body)))
	}
	return nil
}

// A reply is what the daemon says.
type reply struct {
	status int
	isJSON bool
	body   []byte
}

// exchange makes one request; no body is nil.
func (c *Client) exchange(ctx context.Context, method, path string, limit time.Duration, body io.Reader) (a reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://poise"+path, body)
	if err != nil {
		return a, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, c.explain(err, limit)
	}
	defer resp.Body.Close()
	a.status, a.isJSON = resp.StatusCode, resp.Header.Get("Content-Type") == "application/json"
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return a, c.explain(err, limit)
	}
	return a, nil
}

func (c *Client) decode(a reply, v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("cannot understand what %s answers; are poise and the daemon of the same version? %w", c.path, err)
	}
	return nil
}

func (c *Client) misunderstood(method, path string) error {
	return fmt.Errorf("%s does not know %s %s; are poise and the daemon of the same version?", c.path, method, path)
}

// explain says what an error of the socket means.
func (c *Client) explain(err error, limit time.Duration) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("poise is not running: there is no socket %s", c.path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("poise is not running: nobody listens on %s", c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("permission denied on %s: become root%s", c.path, c.group())
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("poise does not answer on %s within %v: it hangs or is overloaded", c.path, limit)
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// group says which group may use the socket, if that can be seen.
func (c *Client) group() string {
	fi, err := os.Stat(c.path)
	if err != nil {
		return ""
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || st.Gid == 0 {
		return ""
	}
	g, err := user.LookupGroupId(strconv.Itoa(int(st.Gid)))
	if err != nil {
		return ""
	}
	return " or a member of the group " + g.Name
}
