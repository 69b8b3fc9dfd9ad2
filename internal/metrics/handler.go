package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// scrapesAtOnce bounds what is left behind by scrapes that have hung for
	// scrapeTimeout. How many are served at once is the caller's to limit.
	scrapesAtOnce = 4
	// scrapeTimeout is Prometheus's own default.
	scrapeTimeout = 10 * time.Second
)

// Handler serves the metrics of src, of the Go runtime and of the process, as
// text or protobuf, whichever is asked for. There must be one a
// process; see New. Trouble is told to log, and costs only the metrics that
// have it.
func Handler(src Source, version string, log *slog.Logger) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		New(src, version),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog:            errorLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            reg,
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTimeout,
		// Not OpenMetrics: it drops _total from a counter's family, and then
		// poise_service_connections would be a gauge and a counter at once.
		EnableOpenMetrics: false,
	}))
}

// errorLog is a promhttp.Logger.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Println(v ...any) {
	l.log.Error("cannot serve all metrics", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}
