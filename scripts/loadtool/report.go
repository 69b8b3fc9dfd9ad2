package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// sample is one measured number, or one measurement that failed. bench.sh writes
// them as lines of JSON.
type sample struct {
	Workers  int     `json:"workers"`
	Round    int     `json:"round"`
	Proxy    string  `json:"proxy"` // "direct" is no proxy at all
	Workload string  `json:"workload"`
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Error    string  `json:"error,omitempty"`
}

// row is one line of the table.
type row struct {
	workload, metric string
	label            string
	goals            [3]float64 // of Poise over HAProxy, nginx and the floor; 0 = none
	lower            bool       // lower is better: a goal is an upper limit
	limit            float64    // goal for Poise's own number, an upper limit; 0 = none
}

// rivals are what Poise is compared with, in the order of row.goals.
var rivals = []struct{ proxy, title string }{{"haproxy", "HAProxy"}, {"nginx", "nginx"}, {"floor", "floor"}}

// rows is the table of goals, in its order.
var rows = []row{
	higher("connect", "rate", "new connections, 1/s", 1.3, 1.2),
	lower("connect", "cpu", "— CPU per connection, µs", 0, 0, 1.05),
	busy("connect", ""),
	higher("message", "rate", "small messages, 1/s", 1.3, 1.15),
	lower("message", "cpu", "— CPU per message, µs", 0, 0, 1.05),
	busy("message", ""),
	higher("bulk", "up-rate", "bulk to the backend, Gbit/s", 1.15, 0),
	lower("bulk", "up-cpu", "— CPU per GB, s", 0.85, 0, 0),
	busy("bulk", "up-"),
	higher("bulk", "down-rate", "bulk to the client, Gbit/s", 1.15, 0),
	lower("bulk", "down-cpu", "— CPU per GB, s", 0.85, 0, 0),
	busy("bulk", "down-"),
	{workload: "idle", metric: "anon", label: "user memory per idle connection, B", lower: true, limit: 1024},
	lower("idle", "rss", "— all resident memory, B", 0, 0, 0),
	lower("latency", "added-p99", "added p99 at half load, µs", 1, 1, 0),
	lower("latency", "p50", "— p50, µs", 0, 0, 0),
	lower("latency", "p99", "— p99, µs", 0, 0, 0),
	higher("udp", "trains-rate", "UDP requests, 4 × 32, joined, 1/s", 0, 2),
	lower("udp", "trains-cpu", "— CPU per request, µs", 0, 0.5, 1.1),
	busy("udp", "trains-"),
	lower("udp", "trains-p99", "— p99, µs", 0, 0, 0),
	lower("udp", "trains-lost", "— lost, %", 0, 0, 0),
	higher("udp", "plain-rate", "UDP requests, 4 × 32, 1/s", 0, 2),
	lower("udp", "plain-cpu", "— CPU per request, µs", 0, 0.5, 1.1),
	busy("udp", "plain-"),
	lower("udp", "plain-p99", "— p99, µs", 0, 0, 0),
	lower("udp", "plain-lost", "— lost, %", 0, 0, 0),
	higher("udp", "many-rate", "UDP requests, 200 × 1, 1/s", 0, 2),
	lower("udp", "many-cpu", "— CPU per request, µs", 0, 0.5, 1.1),
	busy("udp", "many-"),
	lower("udp", "many-p99", "— p99, µs", 0, 0, 0),
	lower("udp", "many-lost", "— lost, %", 0, 0, 0),
	higher("udp-oneway", "trains-rate", "UDP one way, joined, 1/s", 0, 2),
	lower("udp-oneway", "trains-cpu", "— CPU per datagram, µs", 0, 0.5, 1.1),
	busy("udp-oneway", "trains-"),
	lower("udp-oneway", "trains-lost", "— lost, %", 0, 0, 0),
	higher("udp-oneway", "plain-rate", "UDP one way, 1/s", 0, 2),
	lower("udp-oneway", "plain-cpu", "— CPU per datagram, µs", 0, 0.5, 1.1),
	busy("udp-oneway", "plain-"),
	lower("udp-oneway", "plain-lost", "— lost, %", 0, 0, 0),
	higher("tls-handshake", "rate", "new TLS connections, 1/s", 1.4, 1.2),
	lower("tls-handshake", "cpu", "— CPU per connection, µs", 0, 0, 0),
	busy("tls-handshake", ""),
	higher("tls-bulk", "up-rate", "TLS bulk to the backend, Gbit/s", 0, 0),
	lower("tls-bulk", "up-cpu", "— CPU per GB, s", 0.7, 0.7, 0),
	busy("tls-bulk", "up-"),
	higher("tls-bulk", "down-rate", "TLS bulk to the client, Gbit/s", 0, 0),
	lower("tls-bulk", "down-cpu", "— CPU per GB, s", 0.7, 0.7, 0),
	busy("tls-bulk", "down-"),
	lower("tls-first", "p50", "first answer on new TLS, Nagle on, p50, µs", 0, 0, 0),
	lower("tls-first", "p90", "— p90, µs", 0, 0, 0),
	higher("dns", "rate", "DNS queries, 1/s", 0, 2),
	lower("dns", "cpu", "— CPU per query, µs", 0, 0, 1.1),
	busy("dns", ""),
	lower("dns", "lost", "— lost, %", 0, 0, 0),
}

func higher(workload, metric, label string, haproxy, nginx float64) row {
	return row{workload: workload, metric: metric, label: label, goals: [3]float64{haproxy, nginx, 0}}
}

func lower(workload, metric, label string, haproxy, nginx, floor float64) row {
	return row{workload: workload, metric: metric, label: label, goals: [3]float64{haproxy, nginx, floor}, lower: true}
}

func busy(workload, prefix string) row {
	return row{workload: workload, metric: prefix + "busy", label: "— of what it may use of its cores, %", lower: true}
}

// columns in order; direct is the load without a proxy, floor the least a proxy can do
// (scripts/floor).
var columns = []struct{ proxy, title string }{
	{"direct", "direct"}, {"haproxy", "HAProxy"}, {"nginx", "nginx"}, {"poise", "Poise"}, {"floor", "floor"},
}

func reportCommand(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	file := flags.String("out", "", "write all samples to this file as JSON")
	machine := flags.String("machine", "", "where and with what this was measured, one line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var samples []sample
	for d := json.NewDecoder(in); ; {
		var s sample
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("samples: %w", err)
		}
		samples = append(samples, s)
	}
	if *file != "" {
		b, err := json.MarshalIndent(struct {
			Machine string   `json:"machine"`
			Samples []sample `json:"samples"`
		}{*machine, samples}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*file, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, table(samples, *machine))
	return err
}

// series identifies what is repeated in every round.
type series struct {
	workers                 int
	proxy, workload, metric string
}

// table renders all samples: medians, how far single rounds strayed from them,
// ratios of medians, and which goals are missed.
func table(samples []sample, machine string) string {
	values, failures, workers := collect(samples)
	var b strings.Builder
	b.WriteString("| workers | workload |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	for _, r := range rivals {
		b.WriteString(" Poise ÷ " + r.title + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(columns)+len(rivals)) + "\n")
	for _, w := range workers {
		for _, r := range rows {
			r.write(&b, w, values)
		}
	}
	b.WriteString("\nMedians; ± is the round farthest from the median. ")
	b.WriteString("A ratio is followed by its goal; **bold** misses it.")
	if machine != "" {
		b.WriteString(" Measured on " + machine + ".")
	}
	b.WriteString("\n")
	for _, f := range failures {
		b.WriteString("\n- failed: " + f)
	}
	if len(failures) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// collect groups the samples, derives the added latency, and lists what failed.
func collect(samples []sample) (values map[series][]float64, failures []string, workers []int) {
	values = map[series][]float64{}
	direct := map[[2]int]float64{} // p99 without a proxy by workers and round
	for _, s := range samples {
		if !slices.Contains(workers, s.Workers) {
			workers = append(workers, s.Workers)
		}
		if s.Error != "" {
			failures = append(failures, fmt.Sprintf("%s through %s, workers %d, round %d: %s", s.Workload, s.Proxy, s.Workers, s.Round, s.Error))
			continue
		}
		k := series{s.Workers, s.Proxy, s.Workload, s.Metric}
		values[k] = append(values[k], s.Value)
		if s.Proxy == "direct" && s.Workload == "latency" && s.Metric == "p99" {
			direct[[2]int{s.Workers, s.Round}] = s.Value
		}
	}
	for _, s := range samples {
		base, ok := direct[[2]int{s.Workers, s.Round}]
		if ok && s.Error == "" && s.Workload == "latency" && s.Metric == "p99" && s.Proxy != "direct" {
			k := series{s.Workers, s.Proxy, "latency", "added-p99"}
			values[k] = append(values[k], s.Value-base)
		}
	}
	slices.Sort(workers)
	return values, failures, workers
}

func (r row) write(b *strings.Builder, workers int, values map[series][]float64) {
	medians := map[string]float64{}
	cells := make([]string, 0, len(columns))
	for _, c := range columns {
		v := values[series{workers, c.proxy, r.workload, r.metric}]
		if len(v) == 0 {
			cells = append(cells, "–")
			continue
		}
		m, spread := median(v)
		medians[c.proxy] = m
		cell := number(m)
		if len(v) > 1 && m > 0 {
			cell += fmt.Sprintf(" ±%.0f%%", 100*spread/m)
		}
		if c.proxy == "poise" && r.limit != 0 {
			cell = goal(cell, fmt.Sprintf("≤ %g", r.limit), m <= r.limit)
		}
		cells = append(cells, cell)
	}
	if len(medians) == 0 || r.isLoss() && !slices.ContainsFunc(slices.Collect(maps.Values(medians)), func(m float64) bool { return m > 0 }) {
		return
	}
	poise, ok := medians["poise"]
	for i, rival := range rivals {
		other, measured := medians[rival.proxy]
		if !ok || !measured || other <= 0 || !r.compares() {
			cells = append(cells, "–")
			continue
		}
		ratio := poise / other
		cell := fmt.Sprintf("%.2f", ratio)
		if ratio < 0 { // added latency that drowns in the noise
			cell = "< 0"
		}
		switch g := r.goals[i]; {
		case g != 0 && r.lower:
			cell = goal(cell, fmt.Sprintf("≤ %.2f", g), ratio <= g)
		case g != 0:
			cell = goal(cell, fmt.Sprintf("≥ %.2f", g), ratio >= g)
		}
		cells = append(cells, cell)
	}
	fmt.Fprintf(b, "| %d | %s | %s |\n", workers, r.label, strings.Join(cells, " | "))
}

// isLoss tells the rows that are only there when something was lost.
func (r row) isLoss() bool { return strings.HasSuffix(r.metric, "lost") }

// compares is false for rows that explain others: how busy the cores were, and
// what was lost, says nothing as a ratio.
func (r row) compares() bool { return !r.isLoss() && !strings.HasSuffix(r.metric, "busy") }

// goal adds the goal to a cell, and marks the cell when it is missed.
func goal(cell, text string, met bool) string {
	if !met {
		cell = "**" + cell + "**"
	}
	return cell + " (" + text + ")"
}

// median returns the median and how far the farthest value is from it.
func median(v []float64) (m, spread float64) {
	v = slices.Sorted(slices.Values(v))
	m = v[len(v)/2]
	if len(v)%2 == 0 {
		m = (m + v[len(v)/2-1]) / 2
	}
	return m, max(m-v[0], v[len(v)-1]-m)
}

// number prints three significant digits, and whole numbers from 100 on.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
