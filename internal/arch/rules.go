package arch

// House is what docs/architecture.md says, as data. Change both together.
var House = Rules{
	Module: "github.com/poise-lb/poise",

	Imports: map[string][]string{
		"l4":         nil,
		"l4/balance": {"l4", "l4/source"},
		"l4/wire":    nil,
		"l4/disk":    nil,
		"l4/sock":    nil,
		"l4/loop":    {"l4/sock"},
		"l4/notice":  nil,
		"l4/source":  nil,
		"l4/watch":   {"l4/disk"},
		"l4/admit":   {"l4", "l4/disk"},
		"l4/cert":    {"l4", "l4/disk", "l4/watch"},
		"l4/tlsio":   {"l4/sock", "l4/loop"}, // the loop for its tests
		"l4/service": {"l4", "l4/balance", "l4/notice", "l4/sock", "l4/loop"},
		"l4/tcp":     {"l4", "l4/balance", "l4/admit", "l4/cert", "l4/wire", "l4/tlsio", "l4/notice", "l4/service", "l4/sock", "l4/loop"},
		"l4/udp":     {"l4", "l4/balance", "l4/admit", "l4/wire", "l4/notice", "l4/service", "l4/sock", "l4/loop"},

		"health": {"l4/source", "l4/watch", "l4/wire", "internal/keyed", "internal/plural"},
		"bpf":    nil,
		"l7":     {"l4", "l4/balance", "l4/wire"},

		// Config fills in the specs of what it configures, and runs none of it.
		"internal/config": {"l4", "l4/balance", "l4/admit", "l4/cert", "l4/disk", "l4/wire", "l4/tcp", "l4/udp", "health", "bpf", "l7", "internal/plural"},

		// These declare the small interfaces they call.
		"internal/admin":   {"internal/plural"},
		"internal/plural":  nil,
		"internal/keyed":   nil,
		"internal/resolve": {"l4/disk", "l4/watch", "internal/keyed"},
		"internal/hostnet": nil,
		"internal/loadgen": {"internal/plural"},
		"internal/spool":   nil,
		"internal/signals": nil,
		"internal/lab":     nil,
		"internal/arch":    nil,

		// These read the nouns and counters of the domain.
		"internal/metrics":   {"l4", "l4/balance", "l4/cert", "l4/loop", "l4/service", "l4/sock", "l4/tcp", "l4/udp", "health", "bpf", "l7"},
		"internal/accesslog": {"internal/spool", "l4", "l4/balance", "l4/tcp", "l4/udp", "health", "bpf", "l7"},

		// The only writer of pools. It calls the data path through an interface of its own.
		"internal/control": {"l4", "l4/balance", "l4/disk", "health", "internal/admin", "internal/config", "internal/metrics", "internal/plural", "internal/resolve"},

		"internal/daemon": {"l4/...", "health", "bpf", "l7", "internal/..."},
		"internal/demo":   {"l4/balance", "internal/admin", "internal/config", "internal/daemon", "internal/loadgen", "internal/plural"},
		"cmd/poise":       {"l4/...", "health", "bpf", "l7", "internal/..."},

		// The binary from outside. Only tests import the rig.
		"internal/e2e/rig":    {"internal/admin", "internal/loadgen"},
		"internal/e2e/tcp":    {"internal/admin", "internal/loadgen"},
		"internal/e2e/tls":    {"internal/loadgen"},
		"internal/e2e/udp":    nil,
		"internal/e2e/health": {"internal/loadgen"},
		"internal/e2e/reload": {"internal/admin", "internal/loadgen"},
		"internal/e2e/lab":    {"internal/loadgen"},
		"internal/e2e/soak":   {"internal/loadgen"},

		// A tool of the benchmarks must not share code with what it measures.
		"scripts/loadtool": nil,
	},

	Tests: []string{"internal/lab", "internal/arch", "internal/e2e/rig"},

	Floors: [][]string{
		{"cmd/poise"},
		{"internal/daemon"},
		{"internal/control"},
		{"l7", "health", "bpf"},
		{"l4/tcp", "l4/udp"},
		{"l4/service"},
		{"l4/balance", "l4/admit", "l4/cert", "l4/tlsio"},
		{"l4/loop", "l4/watch"},
		{"l4/wire", "l4/notice", "l4/source", "l4/disk", "l4/sock", "l4"},
	},

	Fenced: []Fence{
		// One package owns the descriptors of the data path.
		{Import: "golang.org/x/sys", Within: "l4", Only: []string{"l4/sock"}},
		// Package unsafe goes where the system calls are.
		{Import: "unsafe", Within: "l4", Only: []string{"l4/sock"}},
	},

	Wall: map[string]string{
		// File stamps.
		"l4/watch/stamp.go": "compared with other stamps of the same file, never with now",
		// Display.
		"internal/metrics/backend.go":     "when a certificate ends, as a metric",
		"internal/metrics/certificate.go": "when a certificate ends, as a metric",
		"internal/metrics/collector.go":   "when the last reload was, as a metric",
		// The state file.
		"internal/control/operator.go": "since when an operator's word holds, written to the state file and shown",
		// A deadline that has passed whatever the clock says: it ends what waits.
		"health/prober.go":            "a deadline of 1970",
		"internal/resolve/client.go":  "a deadline of 1970",
		"internal/loadgen/backend.go": "a deadline of 1970",
	},

	FolderNames: []string{"pkg", "util", "common", "types", "helpers"},

	MaxLines: 400,
	Long:     map[string]string{},
}
