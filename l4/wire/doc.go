// Package wire reads and writes the few bytes of other protocols that a layer 4
// balancer has to know: the header of the PROXY protocol, the ClientHello of TLS,
// the first eight bytes of PostgreSQL. It is pure: it appends to and looks at byte
// slices, and knows no sockets and no time.
//
// The parsers are incremental. Next is handed all bytes of the stream so far, each
// time more of them, and looks only at those that it has not seen before. So the
// whole costs the same however the bytes were cut into segments. What can no longer
// become valid is refused at the first byte that shows it, not at a deadline.
package wire
