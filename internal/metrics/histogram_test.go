package metrics

import (
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/tcp"
)

func written(t *testing.T, f *family, h *l4.Histogram) *dto.Histogram {
	t.Helper()
	var d durations
	d.read(h)
	var m dto.Metric
	if err := (&histogram{f, make([]string, len(f.labels)), &d}).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram
}

// Classic and native buckets count the same observations, and count them where
// they belong.
func TestHistogramCountsAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, f := range []*family{backendConnectDuration, sessionDuration} {
		var h l4.Histogram
		var seen []time.Duration
		observe := func(d time.Duration) { h.Observe(d); seen = append(seen, d) }
		for range 20_000 {
			observe(time.Duration(math.Exp(rnd.Float64()*math.Log(float64(2*time.Hour))) * rnd.Float64()))
		}
		for _, b := range f.bounds { // on a bound, and beside it
			at := time.Duration(l4.HistogramBound(b) * 1e9)
			observe(at - 1)
			observe(at)
			observe(at + 1)
		}
		observe(0)
		observe(100 * time.Hour)

		m := written(t, f, &h)
		if got, want := m.GetSampleCount(), uint64(len(seen)); got != want {
			t.Fatalf("%s: count %d, want %d", f.name, got, want)
		}
		for _, b := range m.Bucket {
			var want uint64
			for _, d := range seen {
				if d.Seconds() <= b.GetUpperBound() {
					want++
				}
			}
			if b.GetCumulativeCount() != want {
				t.Errorf("%s: le %v holds %d, want %d", f.name, b.GetUpperBound(), b.GetCumulativeCount(), want)
			}
		}
		native := int64(m.GetZeroCount())
		for _, n := range nativeBuckets(m) {
			native += n
		}
		if native != int64(len(seen)) {
			t.Errorf("%s: native buckets hold %d, want %d", f.name, native, len(seen))
		}
		var zero int64
		for _, d := range seen {
			if d.Seconds() <= m.GetZeroThreshold() {
				zero++
			}
		}
		if int64(m.GetZeroCount()) != zero {
			t.Errorf("%s: zero bucket holds %d, want %d", f.name, m.GetZeroCount(), zero)
		}
	}
}

// Prometheus's own native histogram puts the same durations into the same
// buckets.
func TestNativeBucketsAsPrometheusMakesThem(t *testing.T) {
	oracle := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "oracle", NativeHistogramBucketFactor: 1.1, // schema 3
		NativeHistogramZeroThreshold: l4.HistogramBound(0),
	})
	var h l4.Histogram
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		d := time.Duration(math.Exp(rnd.Float64() * math.Log(float64(time.Hour))))
		h.Observe(d)
		oracle.Observe(d.Seconds())
	}
	var m dto.Metric
	if err := oracle.Write(&m); err != nil {
		t.Fatal(err)
	}
	got, want := written(t, sessionDuration, &h), m.Histogram
	if got.GetSchema() != want.GetSchema() || got.GetZeroCount() != want.GetZeroCount() {
		t.Errorf("schema %d, zero %d; want %d, %d", got.GetSchema(), got.GetZeroCount(), want.GetSchema(), want.GetZeroCount())
	}
	if math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 20_000*0.5e-6 {
		t.Errorf("sum %v, want %v", got.GetSampleSum(), want.GetSampleSum())
	}
	gotBuckets, wantBuckets := nativeBuckets(got), nativeBuckets(want)
	for i := int32(-200); i < 200; i++ {
		if gotBuckets[i] != wantBuckets[i] {
			t.Errorf("bucket %d: %d, want %d", i, gotBuckets[i], wantBuckets[i])
		}
	}
}

func TestEmptyHistogramIsNative(t *testing.T) {
	var h l4.Histogram
	m := written(t, sessionDuration, &h)
	// How Prometheus tells a native histogram without observations from a classic one.
	if m.GetZeroThreshold() == 0 && len(m.PositiveSpan) == 0 {
		t.Error("nothing says that this is a native histogram")
	}
	if len(m.Bucket) != len(sessionDuration.bounds) || m.GetSampleCount() != 0 {
		t.Errorf("%v", m)
	}
}

// Both expositions, parsed as Prometheus would.
func TestExpositions(t *testing.T) {
	svc := &tcp.Service{Name: "redis"}
	svc.Stats.Accepted.Add(2)
	svc.Stats.Duration.Observe(3 * time.Millisecond)
	svc.Stats.Duration.Observe(90 * time.Minute)
	h := Handler(&fake{services: []*tcp.Service{svc}}, "1.2.3", quiet())

	for name, accept := range map[string]string{
		"text":        "text/plain;version=0.0.4",
		"openmetrics": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", // not served
		"protobuf":    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatal(w.Code, w.Body)
			}
			if ct := w.Header().Get("Content-Type"); strings.Contains(ct, "openmetrics") {
				t.Error(ct)
			}
			families := map[string]*dto.MetricFamily{}
			dec := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
			for {
				var f dto.MetricFamily
				if dec.Decode(&f) != nil {
					break
				}
				families[f.GetName()] = &f
			}
			for _, want := range []string{"go_goroutines", "process_open_fds", "poise_build_info", "promhttp_metric_handler_errors_total"} {
				if families[want] == nil {
					t.Errorf("no %s", want)
				}
			}
			f := families["poise_session_duration_seconds"]
			if f == nil || f.GetType() != dto.MetricType_HISTOGRAM || len(f.Metric) != 1 {
				t.Fatalf("%v", f)
			}
			m := f.Metric[0].Histogram
			classic := len(m.Bucket)
			if math.IsInf(m.Bucket[classic-1].GetUpperBound(), 1) { // text spells +Inf out
				if m.Bucket[classic-1].GetCumulativeCount() != 2 {
					t.Errorf("+Inf: %v", m.Bucket[classic-1])
				}
				classic--
			}
			if classic != len(sessionBounds) || m.GetSampleCount() != 2 || m.GetSampleSum() != 5400.003 {
				t.Errorf("%v", m)
			}
			if native := len(m.PositiveSpan) > 0; native != (name == "protobuf") {
				t.Errorf("native: %v", native)
			}
		})
	}
}

func TestNamesAreValid(t *testing.T) {
	for _, f := range catalogue {
		if !model.LegacyValidation.IsValidMetricName(f.name) {
			t.Error(f.name)
		}
	}
}
