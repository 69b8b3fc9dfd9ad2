package admin

import (
	"encoding/json"
	"net/http"
)

// controlHandler serves the unix socket.
func controlHandler(d Daemon) http.Handler {
	mux, turns := http.NewServeMux(), make(turns, turnsAtOnce)
	addCommon(mux, d, &sampler{d: d}, turns)
	mux.HandleFunc("POST /v1/reload", func(w http.ResponseWriter, r *http.Request) {
		res := d.Reload(r.Context())
		if res.Changes == nil {
			res.Changes = []string{}
		}
		if res.Warnings == nil {
			res.Warnings = []string{}
		}
		status := http.StatusOK
		if !res.OK {
			status = http.StatusUnprocessableEntity
		}
		writeJSON(w, status, res)
	})
	mux.HandleFunc("GET /v1/conns", turns.each(func(w http.ResponseWriter, r *http.Request) { serveConns(w, r, d) }))
	mux.Handle("/v1/backends/", operatorHandler(d))
	return mux
}

// publicHandler serves the TCP address. Nothing it offers changes anything.
func publicHandler(d Daemon, metrics http.Handler, known *hosts) http.Handler {
	mux, turns := http.NewServeMux(), make(turns, turnsAtOnce)
	s := &sampler{d: d}
	addCommon(mux, d, s, turns)
	mux.Handle("GET /metrics", turns.each(metrics.ServeHTTP))
	mux.HandleFunc("GET /{$}", turns.each(func(w http.ResponseWriter, r *http.Request) { writePage(w, r, s.status()) }))
	return secure(known.only(mux))
}

// addCommon adds what both listeners have. Probes wait for no turn, nor do commands:
// they cost next to nothing, and orchestrators and operators depend on them.
func addCommon(mux *http.ServeMux, d Daemon, s *sampler, turns turns) {
	mux.HandleFunc("GET /v1/status", turns.each(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.status())
	}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeProbe(w, d.Ready()) })
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeProbe(w, d.Live()) })
}

// secure adds what keeps browsers from doing more with an answer than show it.
func secure(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", contentPolicy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Frame-Options", "DENY")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

func writeProbe(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(err.Error() + "\n"))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// writeJSON answers with v. If the client has gone, so has whoever could be told.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
