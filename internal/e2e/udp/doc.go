// Package udp tests the binary from outside: sessions of datagrams.
package udp
