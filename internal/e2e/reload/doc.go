// Package reload tests the binary from outside: its life as a process from the start to
// the stop, reloads, discovery, and what operators do.
package reload
