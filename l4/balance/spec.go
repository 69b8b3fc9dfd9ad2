package balance

// Spec describes a pool. The zero value of every optional field is its default.
type Spec struct {
	Name      string
	Algorithm string   // a key of Algorithms
	Hash      HashSpec // maglev only
	Backends  []BackendSpec
}

// BackendSpec describes one backend of a pool. Name and Addr together are its
// identity; see BackendID.
type BackendSpec struct {
	Name           string
	Addr           Address
	Weight         int  // share of the flows, 0 to 65535; 0 means no new ones
	Backup         bool // used only while no primary is eligible
	MaxConnections int  // leases at once; 0 = no limit
	// Initial flags are given to a backend that this Update creates, or brings
	// back after another had removed it; they are ignored for one that stays.
	Initial Flag
}

// HashSpec says what a consistent hash hashes.
type HashSpec struct {
	Key string // "source": the client's address; "source-port": its address and port. "" = "source"
	// Leading bits of an IPv4 (1 to 32) and an IPv6 (1 to 128) client address
	// that count; 0 = all of them. 24 keeps a whole /24 on one backend.
	Mask4, Mask6 int
	// Bound, at least 1, is how far a backend's load may exceed its fair share
	// before its flows walk on: 1.25 allows a quarter more. 0 = no bound.
	Bound float64
}

// maxWeight is what Member.Weight can hold.
const maxWeight = 1<<16 - 1

func (s BackendSpec) id() BackendID { return BackendID{s.Name, s.Addr} }
