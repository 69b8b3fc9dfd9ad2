package l4

// Outcome is the one way a flow ended: a log field, a metric label and what
// tests assert. The list is closed; a new way to end needs a new word here.
type Outcome uint8

// The ways a flow ends.
const (
	OK                Outcome = iota // both directions closed in order
	ClientReset                      // the client sent a reset
	BackendReset                     // the backend sent a reset
	Idle                             // no byte in either direction for timeouts.idle
	HalfCloseTimeout                 // one side had ended and the other made no progress
	NoBackend                        // no eligible backend
	ConnectFailed                    // every backend that was tried refused or was unreachable
	ConnectTimeout                   // the last backend tried did not answer in time
	RefusedLimit                     // a connection limit of the service or of every backend
	BackendDown                      // closed by a policy: its backend went down, was removed, or a primary is back
	Drained                          // still open when a drain time ended, or closed by `poise maint`
	Killed                           // closed by a second stop signal
	NoLocalPort                      // no free local port towards the backend
	NoDescriptors                    // out of file descriptors or socket memory
	QueueTimeout                     // waited for a backend with room for queue.timeout
	QueueFull                        // every backend at max_connections, and the queue full too
	RefusedACL                       // the client's address is denied, or not among those allowed
	RefusedRate                      // more new connections a second than limits.rate or limits.source_rate
	BadProxyHeader                   // no valid PROXY header from a peer that must send one
	BadTLSHello                      // what should be a TLS ClientHello is none, or names a server nobody routes
	FirstBytesTimeout                // PROXY header, ClientHello or TLS handshake not complete in timeouts.first_bytes
	TLSFailed                        // the TLS handshake with the client failed
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"ok", "client_reset", "backend_reset", "idle", "half_close_timeout", "no_backend",
	"connect_failed", "connect_timeout", "refused_limit", "backend_down", "drained",
	"killed", "no_local_port", "no_descriptors", "queue_timeout", "queue_full",
	"refused_acl", "refused_rate", "bad_proxy_header", "bad_tls_hello", "first_bytes_timeout",
	"tls_failed",
}

// String returns the word used in logs and metrics.
func (o Outcome) String() string {
	if o < numOutcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// Refused reports whether the client was turned away, by a rule, a limit or for
// want of something, without a backend having failed it.
func (o Outcome) Refused() bool {
	switch o {
	case NoBackend, RefusedLimit, RefusedACL, RefusedRate, BadProxyHeader, BadTLSHello,
		FirstBytesTimeout, TLSFailed, QueueFull, QueueTimeout, NoLocalPort, NoDescriptors:
		return true
	}
	return false
}

// NumOutcomes is the length of the closed list; counters are arrays of it.
const NumOutcomes = int(numOutcomes)

// ConnectReason says why a connect attempt failed. ConnectOK is the absence of
// a failure.
type ConnectReason uint8

// The ways a connect attempt ends.
const (
	ConnectOK ConnectReason = iota
	ConnectRefused
	ConnectUnreachable
	ConnectTimedOut
	ConnectNoLocalPort   // local: not the backend's fault
	ConnectNoDescriptors // local: not the backend's fault
	ConnectTLS           // connected, and the TLS handshake failed
	numConnectReasons
)

var connectReasonNames = [numConnectReasons]string{
	"ok", "refused", "unreachable", "timeout", "no_local_port", "no_descriptors", "tls",
}

// String returns the metric label.
func (r ConnectReason) String() string {
	if r < numConnectReasons {
		return connectReasonNames[r]
	}
	return "unknown"
}

// Local reports whether the failure is this host's and says nothing about the
// backend.
func (r ConnectReason) Local() bool {
	return r == ConnectNoLocalPort || r == ConnectNoDescriptors
}

// NumConnectReasons is the length of the closed list.
const NumConnectReasons = int(numConnectReasons)
