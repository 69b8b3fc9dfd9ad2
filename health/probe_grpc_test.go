package health

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// healthService is a server of grpc.health.v1 that knows these services; OPTIONS
// is answered for the sake of http checks.
func healthService(t *testing.T) http.Handler {
	answers := map[string][]byte{
		"":         {0x08, 1},
		"orders":   {0x08, 1},
		"draining": {0x08, 2},
		"unknown":  {0x08, 3},
		"strange":  {0x08, 99},
		"default":  {},
		// Fields to come: a varint, eight bytes, bytes, four bytes; then the status.
		"newer": {0x10, 0xac, 0x02, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x22, 2, 'h', 'i', 0x2d, 1, 2, 3, 4, 0x08, 1},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method != "POST" || r.URL.Path != "/grpc.health.v1.Health/Check" || r.ProtoMajor != 2 ||
			r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" ||
			!strings.HasSuffix(r.Header.Get("Grpc-Timeout"), "m") {
			t.Errorf("%s %s %v", r.Method, r.URL.Path, r.Header)
		}
		message, err := unframe(body)
		if err != nil {
			t.Error(err)
		}
		service := ""
		if len(message) > 1 {
			service = string(message[2:])
		}
		if want := encodeHealthCheckRequest(service); !bytes.Equal(message, want) {
			t.Errorf("message %x, want %x", message, want)
		}
		w.Header().Set("Content-Type", "application/grpc+proto")
		status, told := "0", ""
		answer, known := answers[service]
		switch {
		case known:
			_, _ = w.Write(frame(answer))
		case service == "html":
			w.Header().Set("Content-Type", "text/html")
		case service == "502":
			w.WriteHeader(502)
		case service == "no-status":
			_, _ = w.Write(frame([]byte{8, 1}))
			return
		case service == "no-message":
		case service == "compressed":
			_, _ = w.Write([]byte{1, 0, 0, 0, 0})
		case service == "short":
			_, _ = w.Write([]byte{0, 0, 0, 0, 9, 8, 1})
		case service == "rubbish":
			_, _ = w.Write(frame([]byte{0xff}))
		case service == "large":
			_, _ = w.Write(make([]byte, 2*maxHealthMessage))
		case service == "aborts":
			_, _ = w.Write([]byte{0})
			panic(http.ErrAbortHandler)
		case service == "slow":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		case service == "trailers-only": // all of it is in the header
			w.Header().Set("Grpc-Status", "12")
			w.Header().Set("Grpc-Message", "not here%0A")
			return
		default:
			status, told = "5", "no "+service
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
		if told != "" {
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(told))
		}
	})
}

func TestGRPCProbe(t *testing.T) {
	t.Parallel()
	s := newWebServer(t, "tcp", nil, healthService(t))
	for _, tt := range []struct {
		service string
		want    Reason
		err     string
	}{
		{"", "", ""},
		{"orders", "", ""},
		{"newer", "", ""},
		{"draining", L7STS, "NOT_SERVING, want SERVING"},
		{"unknown", L7STS, "SERVICE_UNKNOWN, want SERVING"},
		{"default", L7STS, "UNKNOWN, want SERVING"},
		{"strange", L7STS, "serving status 99, want SERVING"},
		{"missing", L7STS, "gRPC status 5 (no such service): no missing"},
		{"trailers-only", L7STS, "gRPC status 12 (no health service): not here"},
		{"502", L7STS, "HTTP status 502"},
		{"html", L7RSP, `content type "text/html"`},
		{"no-status", L7RSP, "no gRPC status"},
		{"no-message", L7RSP, "no message in 0 bytes"},
		{"compressed", L7RSP, "compressed"},
		{"short", L7RSP, "a message of 9 bytes in 2"},
		{"rubbish", L7RSP, "no HealthCheckResponse"},
		{"large", L7RSP, "more than 4096 bytes"},
		{"aborts", L7RSP, "stream"},
	} {
		wantReasonf(t, tt.service, s.probe(Spec{Type: "grpc", GRPC: GRPC{Service: tt.service}}), tt.want, tt.err)
	}
	err := probeOnce(Spec{Type: "grpc", GRPC: GRPC{Service: "slow"}}.Prober(s.network, s.address), shortTimeout)
	wantReasonf(t, "slow", err, L7TOUT, "no complete answer")
	eventually(t, func() bool { return s.open.Load() == 0 })
}

func TestGRPCProbeHost(t *testing.T) {
	t.Parallel()
	hosts := make(chan string, 1)
	inner := healthService(t)
	for _, network := range []string{"tcp", "unix"} {
		s := newWebServer(t, network, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hosts <- r.Host
			inner.ServeHTTP(w, r)
		}))
		own := s.address
		if network == "unix" {
			own = "localhost"
		}
		for host, want := range map[string]string{"": own, "api.example.org": "api.example.org"} {
			if err := s.probe(Spec{Type: "grpc", GRPC: GRPC{Host: host}}); err != nil {
				t.Fatal(err)
			}
			if got := <-hosts; got != want {
				t.Errorf("host %s, want %s", got, want)
			}
		}
	}
}

func FuzzHealthCheckResponse(f *testing.F) {
	f.Add([]byte{0x08, 1})
	f.Add([]byte{0x10, 0xac, 0x02, 0x22, 2, 'h', 'i', 0x08, 2})
	f.Add([]byte{0x22, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		status, err := decodeHealthCheckResponse(b)
		if err != nil {
			return
		}
		// What follows a whole message is one more field, and the last one counts.
		again, err := decodeHealthCheckResponse(append(bytes.Clone(b), 0x08, 5))
		if err != nil || again != 5 {
			t.Errorf("%x: %d, and %d %v with more", b, status, again, err)
		}
		if inner, err := unframe(frame(b)); err != nil || !bytes.Equal(inner, b) {
			t.Errorf("%x: %x %v out of its frame", b, inner, err)
		}
	})
}

func TestGRPCDeadlineIsSent(t *testing.T) {
	p := newGRPCProber(Spec{}, "tcp", "10.0.0.1:1").(*grpcProber)
	ctx, cancel := contextOf(time.Hour)
	defer cancel()
	if got := p.request(ctx).Header.Get("Grpc-Timeout"); len(got) != 8 { // 3599999m
		t.Errorf("%q", got)
	}
}
