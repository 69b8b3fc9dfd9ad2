package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
	"github.com/poise-lb/poise/internal/plural"
)

func benchTitle(o loadgen.Options) string {
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
	conn := connectionNoun(o)
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

func connectionNoun(o loadgen.Options) string {
	if o.UDP {
		return "socket"
	}
	return "connection"
}

// writeBench prints res, of a run with o, for people.
func writeBench(w io.Writer, o loadgen.Options, res loadgen.Result) error {
	var b strings.Builder
	row := func(name string, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	l := res.Latency
	row("requests", "%d answered in %.2fs, %.1f/s", res.Requests, res.Elapsed.Seconds(), res.PerSecond())
	row("failed", "%d", res.Failed)
	if o.UDP {
		row("lost", "%d, %.3g%% of all", res.Lost(), percent(res.Lost(), res.Requests+res.Failed))
	}
	if res.Unsent > 0 {
		row("not sent", "%d were due and never begun: more clients are needed for this rate", res.Unsent)
	}
	row(connectionNoun(o)+"s", "%d", res.Connections)
	if res.Requests > 0 {
		row("latency", "p50 %s   p95 %s   p99 %s   max %s", short(l.P50), short(l.P95), short(l.P99), short(l.Max))
	}
	if len(res.Backends) > 0 {
		fmt.Fprintf(&b, "\n%-20s %10s %7s %8s %8s %8s %8s\n", "backend", "requests", "share", "p50", "p95", "p99", "max")
	}
	for _, r := range res.Backends {
		l := r.Latency
		fmt.Fprintf(&b, "%-20.20s %10d %6.1f%% %8s %8s %8s %8s\n", backendName(r.Name), r.Requests,
			percent(r.Requests, res.Requests), short(l.P50), short(l.P95), short(l.P99), short(l.Max))
	}
	if len(res.Errors) > 0 {
		fmt.Fprintf(&b, "\n%-20s %10s  first\n", "error", "requests")
	}
	for _, e := range res.Errors {
		fmt.Fprintf(&b, "%-20s %10d  %s\n", e.Kind, e.Count, e.First)
		if e.Kind == loadgen.NoLocalPort {
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

// short formats d with about three digits: 87µs 1.23ms 41.0ms 402ms 1.25s 75.0s.
func short(d time.Duration) string {
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

// The report as JSON. Times are in seconds.
type benchReport struct {
	Elapsed     float64        `json:"elapsed"`
	Requests    uint64         `json:"requests"`
	PerSecond   float64        `json:"requests_per_second"`
	Failed      uint64         `json:"failed"`
	Lost        *uint64        `json:"lost,omitempty"` // of the failed, without a reply; over UDP only
	Unsent      uint64         `json:"unsent"`
	Connections uint64         `json:"connections"` // over UDP, sockets
	Latency     benchLatency   `json:"latency"`
	Backends    []benchBackend `json:"backends"`
	Errors      []benchError   `json:"errors"`
}

type benchLatency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

type benchBackend struct {
	Name     string       `json:"name"`
	Requests uint64       `json:"requests"`
	Latency  benchLatency `json:"latency"`
}

type benchError struct {
	Kind  loadgen.Kind `json:"kind"`
	Count uint64       `json:"count"`
	First string       `json:"first"`
}

func benchJSON(o loadgen.Options, r loadgen.Result) benchReport {
	latency := func(l loadgen.Latency) benchLatency {
		return benchLatency{l.Mean.Seconds(), l.P50.Seconds(), l.P95.Seconds(), l.P99.Seconds(), l.Max.Seconds()}
	}
	report := benchReport{
		Elapsed:     r.Elapsed.Seconds(),
		Requests:    r.Requests,
		PerSecond:   r.PerSecond(),
		Failed:      r.Failed,
		Unsent:      r.Unsent,
		Connections: r.Connections,
		Latency:     latency(r.Latency),
		Backends:    []benchBackend{}, // [] and not null, for whoever reads it
		Errors:      []benchError{},
	}
	if o.UDP {
		lost := r.Lost()
		report.Lost = &lost
	}
	for _, b := range r.Backends {
		report.Backends = append(report.Backends, benchBackend{b.Name, b.Requests, latency(b.Latency)})
	}
	for _, e := range r.Errors {
		report.Errors = append(report.Errors, benchError(e))
	}
	return report
}
