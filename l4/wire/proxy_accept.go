package wire

// ProxyAccept says which versions of the PROXY protocol are let in.
type ProxyAccept uint8

// The versions, which may be combined.
const (
	AcceptV1 ProxyAccept = 1 << iota
	AcceptV2
	AcceptAny = AcceptV1 | AcceptV2
)
