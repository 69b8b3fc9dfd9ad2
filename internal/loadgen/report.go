package loadgen

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/plural"
)

// Title is one line about a run: what load, where to, for how long.
func (o Options) Title() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s", plural.Of(o.Clients, "client"), o.Addr)
	if o.Rate > 0 {
		fmt.Fprintf(&b, ", %g requests/s", o.Rate)
	}
	if o.Duration > 0 {
		fmt.Fprintf(&b, ", for %v", o.Duration)
	}
	if o.Requests > 0 {
		fmt.Fprintf(&b, ", %s", plural.Of(o.Requests, "request"))
	}
	fmt.Fprintf(&b, ", %s each, ", plural.Of(o.Size, "byte"))
	conn := o.connectionNoun()
	switch o.PerConnection {
	case 0:
		fmt.Fprintf(&b, "one %s per client", conn)
	case 1:
		fmt.Fprintf(&b, "a %s for each", conn)
	default:
		fmt.Fprintf(&b, "%d on a %s", o.PerConnection, conn)
	}
	return b.String()
}

// connectionNoun is what a client has of a connection.
func (o Options) connectionNoun() string {
	if o.UDP {
		return "socket"
	}
	return "connection"
}

// Write prints the result of a run with o for people.
func (r Result) Write(w io.Writer, o Options) error {
	var b strings.Builder
	row := func(name string, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	l := r.Latency
	row("requests", "%d answered in %.2fs, %.1f/s", r.Requests, r.Elapsed.Seconds(), r.PerSecond())
	row("failed", "%d", r.Failed)
	if o.UDP {
		row("lost", "%d, %.3g%% of all", r.Lost(), percent(r.Lost(), r.Requests+r.Failed))
	}
	if r.Unsent > 0 {
		row("not sent", "%d were due and never begun: more clients are needed for this rate", r.Unsent)
	}
	row(o.connectionNoun()+"s", "%d", r.Connections)
	if r.Requests > 0 {
		row("latency", "p50 %s   p95 %s   p99 %s   max %s", Short(l.P50), Short(l.P95), Short(l.P99), Short(l.Max))
	}
	if len(r.Backends) > 0 {
		fmt.Fprintf(&b, "\n%-20s %10s %7s %8s %8s %8s %8s\n", "backend", "requests", "share", "p50", "p95", "p99", "max")
	}
	for _, s := range r.Backends {
		l := s.Latency
		fmt.Fprintf(&b, "%-20.20s %10d %6.1f%% %8s %8s %8s %8s\n", backendName(s.Name), s.Requests,
			percent(s.Requests, r.Requests), Short(l.P50), Short(l.P95), Short(l.P99), Short(l.Max))
	}
	if len(r.Errors) > 0 {
		fmt.Fprintf(&b, "\n%-20s %10s  first\n", "error", "requests")
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "%-20s %10d  %s\n", e.Kind, e.Count, e.First)
		if e.Kind == NoLocalPort {
			b.WriteString("  Closed connections keep this host's ports for a minute: use fewer connections\n" +
				"  (--requests-per-connection), a lower --rate or a wider net.ipv4.ip_local_port_range.\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func percent(part, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}

func backendName(name string) string {
	if name == "" {
		return "(unnamed)"
	}
	return name
}

// Short formats d with about three digits: 87µs 1.23ms 41.0ms 402ms 1.25s 75.0s.
func Short(d time.Duration) string {
	unit, name := time.Microsecond, "µs"
	switch {
	case d >= time.Second:
		unit, name = time.Second, "s"
	case d >= time.Millisecond:
		unit, name = time.Millisecond, "ms"
	}
	v := float64(d) / float64(unit)
	switch {
	case v >= 100 || unit == time.Microsecond:
		return fmt.Sprintf("%.0f%s", v, name)
	case v >= 10:
		return fmt.Sprintf("%.1f%s", v, name)
	}
	return fmt.Sprintf("%.2f%s", v, name)
}

// Report is a result as JSON has it. Times are in seconds.
type Report struct {
	Elapsed     float64         `json:"elapsed"`
	Requests    uint64          `json:"requests"`
	PerSecond   float64         `json:"requests_per_second"`
	Failed      uint64          `json:"failed"`
	Lost        *uint64         `json:"lost,omitempty"` // of the failed, without a reply; over UDP only
	Unsent      uint64          `json:"unsent"`
	Connections uint64          `json:"connections"` // over UDP, sockets
	Latency     reportLatency   `json:"latency"`
	Backends    []reportBackend `json:"backends"`
	Errors      []reportError   `json:"errors"`
}

type reportLatency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

type reportBackend struct {
	Name     string        `json:"name"`
	Requests uint64        `json:"requests"`
	Latency  reportLatency `json:"latency"`
}

type reportError struct {
	Kind  Kind   `json:"kind"`
	Count uint64 `json:"count"`
	First string `json:"first"`
}

// Report returns the result of a run with o for programs.
func (r Result) Report(o Options) Report {
	latency := func(l Latency) reportLatency {
		return reportLatency{l.Mean.Seconds(), l.P50.Seconds(), l.P95.Seconds(), l.P99.Seconds(), l.Max.Seconds()}
	}
	report := Report{
		Elapsed:     r.Elapsed.Seconds(),
		Requests:    r.Requests,
		PerSecond:   r.PerSecond(),
		Failed:      r.Failed,
		Unsent:      r.Unsent,
		Connections: r.Connections,
		Latency:     latency(r.Latency),
		Backends:    []reportBackend{}, // [] and not null, for whoever reads it
		Errors:      []reportError{},
	}
	if o.UDP {
		lost := r.Lost()
		report.Lost = &lost
	}
	for _, b := range r.Backends {
		report.Backends = append(report.Backends, reportBackend{b.Name, b.Requests, latency(b.Latency)})
	}
	for _, e := range r.Errors {
		report.Errors = append(report.Errors, reportError(e))
	}
	return report
}
