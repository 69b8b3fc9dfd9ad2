// Package tcp tests the binary from outside: connections are admitted, balanced, relayed
// and ended.
package tcp
