// Package cert keeps the certificates of TLS listeners and backends: it loads
// them, chooses by server name, and takes up changed files without a restart.
package cert

// Spec is the validated TLS configuration of one service.
type Spec struct {
	Certificates []Pair // the first is the default; several of one name may differ in key type
	ClientCA     string // PEM file of the authorities whose clients are let in; "" = none is asked for
	// ClientOptional lets clients without a certificate in; those with a bad one stay out.
	ClientOptional bool
	MinVersion     uint16   // tls.VersionTLS12 or tls.VersionTLS13
	ALPN           []string // in order of preference
	TicketKeys     string   // file with the keys of session tickets, shared by a pair; "" = own ones
}

// Pair is the files of one certificate chain.
type Pair struct {
	Cert, Key string // PEM
	OCSP      string // DER response to staple; "" = none
}

// ClientSpec is the validated TLS configuration towards the backends of one pool.
type ClientSpec struct {
	ServerName string // "" = the backend's address
	CA         string // PEM file; "" = the system's
	Cert, Key  string // PEM files of the client's certificate; "" = none
	Verify     bool
	MinVersion uint16
	ALPN       []string
}
