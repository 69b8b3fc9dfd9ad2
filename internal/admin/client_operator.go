package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
)

func backendPath(pool, backend string) string {
	return "/v1/backends/" + url.PathEscape(pool) + "/" + url.PathEscape(backend)
}

// Backend describes one backend.
func (c *Client) Backend(ctx context.Context, pool, backend string) (s BackendState, err error) {
	err = c.operate(ctx, http.MethodGet, backendPath(pool, backend), nil, &s)
	return s, err
}

// SetState puts a backend into a state and waits until that is in force.
func (c *Client) SetState(ctx context.Context, pool, backend string, r StateRequest) (s BackendState, err error) {
	err = c.operate(ctx, http.MethodPost, backendPath(pool, backend)+"/state", r, &s)
	return s, err
}

// SetWeight gives a backend a weight; nil restores the configured one.
func (c *Client) SetWeight(ctx context.Context, pool, backend string, weight *int) (s BackendState, err error) {
	err = c.operate(ctx, http.MethodPost, backendPath(pool, backend)+"/weight", WeightRequest{weight}, &s)
	return s, err
}

// Conns lists open connections, the oldest first.
func (c *Client) Conns(ctx context.Context, q ConnQuery) (l ConnList, err error) {
	query := url.Values{"limit": {strconv.Itoa(q.Limit)}}
	if q.Pool != "" {
		query.Set("pool", q.Pool)
	}
	if q.Backend != "" {
		query.Set("backend", q.Backend)
	}
	err = c.operate(ctx, http.MethodGet, "/v1/conns?"+query.Encode(), nil, &l)
	return l, err
}

// operate makes a request whose body is in, unless that is nil. A refusal is an
// error.
func (c *Client) operate(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	a, err := c.exchange(ctx, method, path, askTimeout, &body)
	switch {
	case err != nil:
		return err
	case !a.isJSON:
		return c.misunderstood(method, path)
	case a.status == http.StatusOK:
		return c.decode(a, out)
	}
	var refused refusal
	if err := c.decode(a, &refused); err != nil {
		return err
	}
	return errors.New(refused.Error)
}
