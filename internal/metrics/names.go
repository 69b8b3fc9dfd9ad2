package metrics

import "github.com/prometheus/client_golang/prometheus"

// Every metric, in the order of docs/metrics.md, which a test holds to this
// table. Labels are never chosen by a stranger: they are names from the
// configuration or words of a closed list.
var (
	buildInfo     = gauge("poise_build_info", "Always 1; the labels tell which build runs.", "version", "goversion")
	reloadSuccess = gauge("poise_config_last_reload_success", "1 if the configuration was accepted when it was last read, at the start or at a reload, else 0.")
	reloadTime    = gauge("poise_config_last_reload_timestamp_seconds", "When the configuration was last read, accepted or not, in Unix time.")

	serviceConnections      = gauge("poise_service_connections", "Client connections, or UDP sessions, open now.", "service")
	serviceConnectionsTotal = counter("poise_service_connections_total", "Client connections accepted, or UDP sessions begun, those refused at once included.", "service")
	serviceRefused          = counter("poise_service_refused_total", "Client connections turned away without a connect attempt having failed; each is counted in poise_sessions_total as well.", "service", "reason")
	serviceBytes            = counter("poise_service_bytes_total", "Bytes relayed: in from clients, out to clients.", "service", "direction")
	serviceRetries          = counter("poise_retries_total", "Further backends tried, after a failed connect or with what another one has not answered.", "service")
	sessions                = counter("poise_sessions_total", "Client connections and UDP sessions that ended, by how they ended.", "service", "outcome")
	sessionDuration         = histogramOf("poise_session_duration_seconds", "Time from accepting a client connection, or beginning a UDP session, that reached a backend to its end.", sessionBounds, "service")

	serviceDatagrams = counter("poise_service_datagrams_total", "Datagrams relayed: in from clients, out to clients.", "service", "direction")
	udpDropped       = counter("poise_udp_dropped_total", "Datagrams that did not go on, of either direction.", "service", "reason")

	tlsHandshakes       = counter("poise_tls_handshakes_total", "TLS handshakes with clients that succeeded, by whether they resumed a session. Those that failed are in poise_sessions_total.", "service", "resumed")
	tlsHandshakesActive = gauge("poise_tls_handshakes_active", "TLS handshakes with clients that are under way.", "service")
	certificateExpiry   = gauge("poise_certificate_expiry_timestamp_seconds", "When a certificate expires that the service shows its clients, in Unix time; the label is its file.", "service", "certificate")
	certificatesBroken  = gauge("poise_certificate_files_broken", "Certificates, keys, lists of authorities and OCSP responses whose files cannot be used as they are now: what was loaded before is in use. One that two services share counts twice.")

	poolEligible      = gauge("poise_pool_eligible_backends", "Backends that new connections are spread over now: those of the tier in use.", "pool")
	poolPanic         = gauge("poise_pool_panic", "1 while so few backends are healthy that all are used, else 0.", "pool")
	poolQueue         = gauge("poise_pool_queue", "Connections that wait for a backend with room.", "pool")
	poolRetriesDenied = counter("poise_pool_retries_denied_total", "Further backends not tried because the retry budget, or the client's share of it, was used up.", "pool")

	strategySessions = counter("poise_strategy_sessions_total", "Connections that were given to one of the two strategies that the pool compares.", "pool", "strategy")
	strategyAttempts = counter("poise_strategy_attempts_total", "Connections and retries by what came of them: ok with the backend's first byte, failed before it.", "pool", "strategy", "result")
	strategyDuration = histogramOf("poise_strategy_first_byte_duration_seconds", "Time from the connect to the backend's first byte.", connectBounds, "pool", "strategy")

	backendConnections      = gauge("poise_backend_connections", "Connections to the backend that are open or being made.", "pool", "backend")
	backendConnectionsTotal = counter("poise_backend_connections_total", "Connections established to the backend.", "pool", "backend")
	backendDatagrams        = counter("poise_backend_datagrams_total", "Datagrams of services with spray, each balanced by itself, that the backend was sent. Only a backend that has had some has a series.", "pool", "backend")
	backendBytes            = counter("poise_backend_bytes_total", "Bytes relayed: in to the backend, out from it.", "pool", "backend", "direction")
	backendConnectFailures  = counter("poise_backend_connect_failures_total", "Connect attempts to the backend that failed. The reasons no_local_port and no_descriptors are this host's failures.", "pool", "backend", "reason")
	backendConnectDuration  = histogramOf("poise_backend_connect_duration_seconds", "Time the connects that succeeded took.", connectBounds, "pool", "backend")
	backendFirstByte        = histogramOf("poise_backend_first_byte_duration_seconds", "Time from the established connection to the backend's first byte.", connectBounds, "pool", "backend")
	backendUp               = gauge("poise_backend_up", "1 if nothing keeps the backend from getting new connections but perhaps a weight of 0, else 0, which includes half-open and standby.", "pool", "backend")
	backendState            = gauge("poise_backend_state", "1 for the state the backend is in, 0 for all others.", "pool", "backend", "state")
	backendWeight           = gauge("poise_backend_weight", "Weight, the operator's if there is one, else the configured one; 0 if the backend is removed.", "pool", "backend")
	backendCheckFailures    = counter("poise_backend_check_failures_total", "Active checks that failed.", "pool", "backend", "reason")
	backendCheckDuration    = gauge("poise_backend_check_duration_seconds", "Time the latest active check took.", "pool", "backend")
	backendCheckCertificate = gauge("poise_backend_check_certificate_expiry_timestamp_seconds", "When the certificate expires that the active check was shown last, or one above it that it needs.", "pool", "backend")
	backendEjections        = counter("poise_backend_ejections_total", "Times passive checks ejected the backend.", "pool", "backend")
	backendStateChanges     = counter("poise_backend_state_changes_total", "Changes of the backend's state by who made them and why, as they are in the log. Only kinds that have happened have a series.", "pool", "backend", "author", "reason")

	loopBusy         = gauge("poise_loop_busy_ratio", "Share of the time since an earlier scrape that the event loop was at work, 0 to 1.", "loop")
	acceptErrors     = counter("poise_accept_errors_total", "Times accepting failed or had to pause.", "reason")
	logDropped       = counter("poise_log_dropped_total", "Messages of the process lost because its log was not read or failed.")
	accessLogDropped = counter("poise_accesslog_dropped_total", "Access log lines lost because the target was too slow or failed.")
)

// family is one row of the table.
type family struct {
	*prometheus.Desc
	name, kind, help string
	labels           []string
	bounds           []int // of a histogram: the l4 buckets whose upper bounds are its classic ones
}

var catalogue []*family

func gauge(name, help string, labels ...string) *family {
	return add(&family{name: name, kind: "gauge", help: help, labels: labels})
}

func counter(name, help string, labels ...string) *family {
	return add(&family{name: name, kind: "counter", help: help, labels: labels})
}

func histogramOf(name, help string, bounds []int, labels ...string) *family {
	return add(&family{name: name, kind: "histogram", help: help, labels: labels, bounds: bounds})
}

func add(f *family) *family {
	f.Desc = prometheus.NewDesc(f.name, f.help, f.labels, nil)
	catalogue = append(catalogue, f)
	return f
}

// value makes a metric of a gauge or counter.
func (f *family) value(v float64, labels ...string) prometheus.Metric {
	kind := prometheus.GaugeValue
	if f.kind == "counter" {
		kind = prometheus.CounterValue
	}
	return prometheus.MustNewConstMetric(f.Desc, kind, v, labels...)
}
