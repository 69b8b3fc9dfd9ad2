package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collectCertificates emits one series a file. A service may have a file twice,
// once for each of two names say: what counts is when it first matters.
func (c *Collector) collectCertificates(ch chan<- prometheus.Metric) {
	ch <- certificatesBroken.value(float64(c.src.BrokenCertificates()))
	type key struct{ service, path string }
	expires := map[key]time.Time{}
	for _, cert := range c.src.Certificates() {
		k := key{label(cert.Service), label(cert.Path)}
		if at, ok := expires[k]; !ok || cert.Expires.Before(at) {
			expires[k] = cert.Expires
		}
	}
	for k, at := range expires {
		ch <- certificateExpiry.value(float64(at.Unix()), k.service, k.path)
	}
}
