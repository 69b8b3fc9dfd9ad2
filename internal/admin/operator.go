package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// An Operator does what whoever runs the daemon asks for at run time. Its methods
// are called from many goroutines at once; each may take as long as a disk does.
type Operator interface {
	// Backend describes one backend. The error of all methods is NotFound for a
	// name that is not configured.
	Backend(pool, backend string) (BackendState, error)
	// SetState applies a state to a backend; see StateRequest.
	SetState(pool, backend string, r StateRequest) (BackendState, error)
	// SetWeight gives a backend a weight, 0 to 65535, in place of the configured
	// one, which nil restores.
	SetWeight(pool, backend string, weight *int) (BackendState, error)
	// Conns lists open connections, the oldest first.
	Conns(q ConnQuery) ([]Conn, error)
}

// NotFound is the error of a name that is not configured. Its text says what
// would be right.
type NotFound struct{ Text string }

func (e NotFound) Error() string { return e.Text }

// What an operator says about a backend.
const (
	OperatorReady = "ready" // nothing against it
	OperatorDrain = "drain" // no new connections
	OperatorMaint = "maint" // none at all
)

// StateRequest is the body of POST /v1/backends/{pool}/{backend}/state.
type StateRequest struct {
	State string `json:"state"` // ready | drain | maint
	// Close closes the connections that are open to a backend that is set to
	// drain; maint always does.
	Close bool `json:"close,omitempty"`
}

// WeightRequest is the body of POST /v1/backends/{pool}/{backend}/weight.
type WeightRequest struct {
	Weight *int `json:"weight"` // 0 to 65535; null = the configured one
}

// maxWeight is the largest weight there is.
const maxWeight = 65535

// BackendState is the answer to all that concerns one backend.
type BackendState struct {
	Pool        string   `json:"pool"`
	Backend     string   `json:"backend"`
	Address     string   `json:"address"`
	Operator    string   `json:"operator"`         // ready | drain | maint
	State       string   `json:"state"`            // as of Backend
	Reason      string   `json:"reason,omitempty"` // as of Backend
	Weight      int      `json:"weight"`           // in force
	FileWeight  int      `json:"file_weight"`      // configured
	Connections int64    `json:"connections"`      // open, those of its former names included
	Closed      int64    `json:"closed"`           // how many were open that this has closed
	Warnings    []string `json:"warnings"`         // what the operator should know of
}

// How many connections one answer lists at most, and how many it does if
// nobody says.
const (
	MaxConns     = 10_000
	DefaultConns = 1000
)

// ConnQuery says which connections are asked for.
type ConnQuery struct {
	Pool, Backend string // "" = any
	Limit         int    // 1 to MaxConns
}

// Conn is one open client connection.
type Conn struct {
	Proto    string         `json:"proto"`         // tcp | udp
	Client   netip.AddrPort `json:"client"`        // as the PROXY header says, if there was one
	Peer     netip.AddrPort `json:"peer,omitzero"` // who sent that header; zero = the client itself connected
	Local    netip.AddrPort `json:"local"`         // where the client connected to
	Service  string         `json:"service"`
	Pool     string         `json:"pool"`
	Backend  string         `json:"backend"` // "" = none is chosen yet
	State    string         `json:"state"`   // queued | connecting | open | closing
	Age      float64        `json:"age"`     // seconds since it was accepted
	Idle     float64        `json:"idle"`    // seconds since bytes moved
	BytesIn  uint64         `json:"bytes_in"`
	BytesOut uint64         `json:"bytes_out"`

	DatagramsIn  uint64 `json:"datagrams_in,omitempty"` // of a UDP session
	DatagramsOut uint64 `json:"datagrams_out,omitempty"`
}

// ConnList is the answer to GET /v1/conns.
type ConnList struct {
	Now   time.Time `json:"now"`
	Conns []Conn    `json:"conns"`
}

// A refusal is how requests that fail are answered.
type refusal struct {
	Error string `json:"error"`
}

// operatorHandler serves what changes single backends.
func operatorHandler(o Operator) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/backends/{pool}/{backend}", func(w http.ResponseWriter, r *http.Request) {
		s, err := o.Backend(r.PathValue("pool"), r.PathValue("backend"))
		answer(w, s, err)
	})
	mux.HandleFunc("POST /v1/backends/{pool}/{backend}/state", func(w http.ResponseWriter, r *http.Request) {
		var in StateRequest
		if !readJSON(w, r, &in) {
			return
		}
		switch in.State {
		case OperatorReady, OperatorDrain, OperatorMaint:
		default:
			badRequest(w, fmt.Sprintf("no state %q; write ready, drain or maint", in.State))
			return
		}
		s, err := o.SetState(r.PathValue("pool"), r.PathValue("backend"), in)
		answer(w, s, err)
	})
	mux.HandleFunc("POST /v1/backends/{pool}/{backend}/weight", func(w http.ResponseWriter, r *http.Request) {
		in := struct {
			Weight json.RawMessage `json:"weight"`
		}{}
		if !readJSON(w, r, &in) {
			return
		}
		var weight *int
		// A body without the key must not pass for null, which changes something.
		if err := json.Unmarshal(in.Weight, &weight); err != nil || weight != nil && (*weight < 0 || *weight > maxWeight) {
			badRequest(w, fmt.Sprintf("the weight must be a number from 0 to %d, or null for the configured one", maxWeight))
			return
		}
		s, err := o.SetWeight(r.PathValue("pool"), r.PathValue("backend"), weight)
		answer(w, s, err)
	})
	return mux
}

func serveConns(w http.ResponseWriter, r *http.Request, o Operator) {
	query := r.URL.Query()
	q := ConnQuery{Pool: query.Get("pool"), Backend: query.Get("backend"), Limit: DefaultConns}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxConns {
			badRequest(w, fmt.Sprintf("the limit must be a number from 1 to %d", MaxConns))
			return
		}
		q.Limit = n
	}
	conns, err := o.Conns(q)
	if conns == nil {
		conns = []Conn{}
	}
	answer(w, ConnList{Now: time.Now(), Conns: conns}, err)
}

// readJSON reads the body, and answers if it cannot be understood.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("there is more than one value")
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, io.EOF):
		err = errors.New("it is empty")
	}
	badRequest(w, "the body must be a JSON object: "+err.Error())
	return false
}

func badRequest(w http.ResponseWriter, text string) {
	writeJSON(w, http.StatusBadRequest, refusal{text})
}

// answer answers with v, or with the error.
func answer(w http.ResponseWriter, v any, err error) {
	switch missing := (NotFound{}); {
	case errors.As(err, &missing):
		writeJSON(w, http.StatusNotFound, refusal{missing.Text})
	case err != nil:
		writeJSON(w, http.StatusInternalServerError, refusal{err.Error()})
	default:
		writeJSON(w, http.StatusOK, v)
	}
}
