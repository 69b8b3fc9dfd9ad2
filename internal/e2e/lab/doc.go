// Package lab tests the binary from outside, on hosts of its own in network namespaces.
// These tests need root.
package lab
