// Package tls tests the binary from outside: TLS from clients and to backends, routing by
// name, and services that begin TLS in the clear.
package tls
