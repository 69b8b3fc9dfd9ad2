package admin

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// turnsAtOnce bounds the answers that are being made at the same time. Each is a
	// matter of milliseconds, so that waiting for a turn is better than a refusal, which
	// Prometheus would take for a target that is down.
	turnsAtOnce = 2
	// turnPatience is how long a request waits for its turn; its client has given up by
	// then.
	turnPatience = 10 * time.Second
)

// turns let so many requests at once be answered.
type turns chan struct{}

// each serves h in turn. A client that waits for its turn may have to give way.
func (t turns) each(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := visitorOf(r)
		v.waiting()
		patience := time.NewTimer(turnPatience)
		defer patience.Stop()
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
		case <-patience.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests are being answered", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		v.serving()
		h(w, r)
	}
}

// maxRequest bounds what a request may send.
const maxRequest = 4 << 10

// whole serves h with requests that have come in whole, and lets it write its answer
// at once: neither what is being computed nor a turn depends on how fast a client
// sends and reads.
func whole(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			badRequest(w, "the body cannot be read: "+err.Error())
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		v := visitorOf(r)
		v.serving()
		a := &buffered{header: w.Header(), status: http.StatusOK}
		h.ServeHTTP(a, r)
		v.answering(a.body.Len())
		defer v.answered()
		a.header.Set("Content-Length", strconv.Itoa(a.body.Len()))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body.Bytes()) // a client that has gone needs no answer
	})
}

// buffered is what a handler answers, before it goes out.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *buffered) Header() http.Header         { return a.header }
func (a *buffered) WriteHeader(status int)      { a.status = status }
func (a *buffered) Write(p []byte) (int, error) { return a.body.Write(p) }
