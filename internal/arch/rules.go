package arch

// House is what docs/architecture.md says, as data. Change both together.
var House = Rules{
	Module: "github.com/poise-lb/poise",

	Imports: map[string][]string{
		"l4":         nil,
		"l4/source":  nil,
		"l4/balance": {"l4", "l4/source"},
		"l4/wire":    nil,
		"l4/disk":    nil,
		"l4/watch":   {"l4/disk"},
		"l4/sock":    nil,
		"l4/loop":    {"l4/sock"},
		"l4/notice":  nil,
		"l4/admit":   {"l4", "l4/disk"},
		"l4/cert":    {"l4", "l4/disk", "l4/watch"},
		"l4/tlsio":   {"l4/sock"},
		"l4/dial":    {"l4", "l4/balance", "l4/cert", "l4/tlsio", "l4/wire", "l4/sock", "l4/loop"},
		"l4/service": {"l4", "l4/balance", "l4/loop", "l4/notice", "l4/sock"},
		"l4/tcp":     {"l4", "l4/admit", "l4/balance", "l4/cert", "l4/loop", "l4/notice", "l4/service", "l4/sock", "l4/tlsio", "l4/wire", "l4/dial"},
		"l4/udp":     {"l4", "l4/admit", "l4/balance", "l4/loop", "l4/notice", "l4/service", "l4/sock", "l4/wire"},

		"health": {"internal/keyed", "internal/plural", "l4/source", "l4/watch", "l4/wire"},

		"l7/head":  nil,
		"l7/h1":    {"l7/head"},
		"l7/h2":    {"l7/head"},
		"l7/route": {"l7/head"},
		"l7":       {"l4", "l4/balance", "l4/dial", "l4/tcp", "l4/admit", "l4/cert", "l4/tlsio", "l4/notice", "l4/sock", "l4/loop", "l7/head", "l7/h1", "l7/h2", "l7/route"},

		"bpf":              nil,
		"internal/hostnet": nil,
		"internal/offload": {"l4", "l4/balance", "bpf", "internal/hostnet"},

		// Config fills in the specs of what it configures, and runs none of it.
		"internal/config": {"health", "internal/plural", "l4", "l4/admit", "l4/balance", "l4/cert", "l4/disk", "l4/tcp", "l4/udp", "l4/wire", "l7", "l7/route"},

		// These declare the small interfaces they call.
		"internal/admin":   {"internal/plural"},
		"internal/plural":  nil,
		"internal/keyed":   nil,
		"internal/resolve": {"internal/keyed", "l4/disk", "l4/watch"},
		"internal/loadgen": {"internal/plural"},
		"internal/spool":   nil,
		"internal/signals": nil,
		"internal/lab":     nil,
		"internal/arch":    nil,

		// These read the nouns and counters of the domain.
		"internal/metrics":   {"health", "l4", "l4/balance", "l4/service", "l4/tcp", "l4/udp", "l7"},
		"internal/accesslog": {"internal/spool", "l4", "l7"},

		// The only writer of pools. It calls the data path through an interface of its own.
		"internal/control": {"health", "internal/admin", "internal/config", "internal/metrics", "internal/plural", "internal/resolve", "l4", "l4/balance", "l4/disk"},

		// Where the arrows meet.
		"internal/daemon": {"health", "internal/accesslog", "internal/admin", "internal/config", "internal/control", "internal/metrics", "internal/plural", "internal/resolve", "internal/spool", "l4", "l4/admit", "l4/balance", "l4/cert", "l4/disk", "l4/loop", "l4/service", "l4/sock", "l4/tcp", "l4/udp", "l7", "internal/offload"},
		"internal/demo":   {"internal/admin", "internal/config", "internal/daemon", "internal/loadgen", "internal/plural"},
		"cmd/poise":       {"health", "internal/admin", "internal/config", "internal/daemon", "internal/demo", "internal/loadgen", "internal/plural", "internal/signals", "l4", "l4/admit", "l4/balance", "l4/tcp", "l4/udp", "l4/wire"},

		// The binary from outside. Only tests import the rig.
		"internal/e2e/rig":    {"internal/admin", "internal/loadgen"},
		"internal/e2e/tcp":    nil,
		"internal/e2e/tls":    nil,
		"internal/e2e/udp":    nil,
		"internal/e2e/health": nil,
		"internal/e2e/reload": nil,
		"internal/e2e/lab":    nil,
		"internal/e2e/soak":   nil,

		// A tool of the benchmarks must not share code with what it measures.
		"scripts/loadtool": nil,
	},

	TestImports: map[string][]string{
		"l4/tlsio":            {"l4/loop"},
		"internal/metrics":    {"l4/loop", "l4/sock"},
		"internal/daemon":     {"internal/loadgen"},
		"internal/demo":       {"l4/balance"},
		"internal/e2e/tcp":    {"internal/admin", "internal/loadgen"},
		"internal/e2e/tls":    {"internal/loadgen"},
		"internal/e2e/health": {"internal/loadgen"},
		"internal/e2e/reload": {"internal/admin", "internal/loadgen"},
		"internal/e2e/lab":    {"internal/loadgen"},
		"internal/e2e/soak":   {"internal/loadgen"},
	},

	// HTTP, and the offload to the kernel.
	Planned: []string{
		"l4/dial", "l7", "l7/head", "l7/h1", "l7/h2", "l7/route",
		"bpf", "internal/hostnet", "internal/offload",
	},

	Tests: []string{"internal/lab", "internal/arch", "internal/e2e/rig"},

	Floors: [][]string{
		{"cmd/poise"},
		{"internal/daemon"},
		{"internal/control"},
		{"l7", "health", "internal/offload"},
		{"l4/tcp", "l4/udp", "l7/h1", "l7/h2", "l7/route"},
		{"l4/service", "l4/dial", "l7/head"},
		{"l4/balance", "l4/admit", "l4/cert", "l4/tlsio"},
		{"l4/loop", "l4/watch", "bpf", "internal/hostnet"},
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
