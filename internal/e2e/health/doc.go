// Package health tests the binary from outside: checks, passive ejection, and what
// becomes of connections when a backend goes up or down.
package health
