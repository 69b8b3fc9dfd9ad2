// Package wire reads and writes the few bytes of other protocols that a layer 4
// balancer has to know. It is pure: it appends to and looks at byte slices, and
// knows no sockets and no time.
package wire
