package metrics

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poise-lb/poise/l4/balance"
)

func TestBusyMeter(t *testing.T) {
	s := time.Second
	var m busyMeter
	for i, step := range []struct {
		busy, total time.Duration
		want        float64
	}{
		{1 * s, 4 * s, 0.25},             // since the loop began
		{4 * s, 8 * s, 0.75},             // since the scrape before
		{4*s + s/4, 8*s + s/2, 0.5},      // soon after it,
		{4*s + s/2, 8*s + 3*s/4, 2. / 3}, // and again: still since then
		{5 * s, 18 * s, 0.1},             // long after it
		{5 * s, 18 * s, 0},               // no time has passed
		{17 * s, 28 * s, 1},              // clocks read at different moments
		{17 * s, 38 * s, 0},              // idle
	} {
		got := m.ratios([]time.Duration{step.busy}, []time.Duration{step.total})
		if len(got) != 1 || got[0] != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	if got := m.ratios([]time.Duration{s, s}, []time.Duration{2 * s, s}); got[0] != 0.5 || got[1] != 1 {
		t.Errorf("another number of loops: %v", got)
	}
}

// A metric that cannot be served costs itself only, and is logged.
func TestHandlerServesWhatItCan(t *testing.T) {
	var buf bytes.Buffer
	src := &fake{
		pools:        []*balance.Pool{balance.New(poolSpec("p", backendSpec("a", 1)), nil)},
		acceptErrors: map[string]uint64{"\xfe": 1, "\xff": 1}, // the same once they are UTF-8
	}
	h := Handler(src, "1.2.3", slog.New(slog.NewTextHandler(&buf, nil)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `poise_backend_up{backend="a",pool="p"} 1`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(buf.String(), "poise_accept_errors_total") {
		t.Error(buf.String())
	}
}

func BenchmarkScrape(b *testing.B) {
	var specs []balance.BackendSpec
	for i := range 1000 {
		specs = append(specs, backendSpec(fmt.Sprint("b", i), uint16(i+1)))
	}
	pool := balance.New(poolSpec("p", specs...), nil)
	for _, be := range pool.Backends() {
		for i := range 2000 {
			be.Stats.ConnectTime.Observe(time.Duration(i) * time.Microsecond)
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(New(&fake{pools: []*balance.Pool{pool}}, ""))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
