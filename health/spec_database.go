package health

import "time"

// Secret is a password. However it is printed, it does not show.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(secret)" }

// MarshalText hides the secret from JSON and the like.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Role is what a database server is to its fellows.
type Role string

// The roles. Servers with other names for theirs, such as master, go by these.
const (
	AnyRole Role = "" // not asked for
	Primary Role = "primary"
	Replica Role = "replica"
)

// DNSQuery is the question a dns check asks and the answer it expects. (DNS is a
// Reason.)
type DNSQuery struct {
	Name   string // a domain name, absolute with or without the final dot; "" = the root
	Type   string // a record type such as "A"; "" = "A"
	RCode  string // the response code of a healthy server, such as "NXDOMAIN"; "" = "NOERROR"
	Answer string // what one record of that type must say, as in a zone file: "10.0.0.1"; "" = nothing in particular
	TCP    bool   // ask over TCP at once; else over UDP, and again over TCP if the answer is truncated
}

// Postgres is how a postgres check logs in and what it expects.
type Postgres struct {
	User     string
	Password Secret // for what the server asks for: SCRAM, MD5 or clear text
	Database string // "" = that of the user's name
	TLS      bool   // as Spec.TLS says; not over unix sockets

	Role   Role
	MaxLag time.Duration // that a replica may be behind its primary; 0 = any
}

// MySQL is how a mysql check logs in and what it expects.
type MySQL struct {
	User     string
	Password Secret
	Database string // "" = none
	TLS      bool   // as Spec.TLS says

	Role   Role          // by read_only
	MaxLag time.Duration // that a replica may be behind, which it tells in whole seconds; 0 = any
}

// Redis is how a redis check logs in and what it expects.
type Redis struct {
	User     string // of an ACL; "" = the default user
	Password Secret // "" = no AUTH
	TLS      bool   // as Spec.TLS says

	// With AnyRole and neither limit set, nothing is asked about replication.
	Role        Role
	MaxLag      time.Duration // that a replica may be without its master; 0 = not at all
	MaxLagBytes int           // that a replica may have received but not applied; 0 = any
}

// check returns a Failure if the server has the other role.
func (r Role) check(replica bool) error {
	is := Primary
	if replica {
		is = Replica
	}
	if r != AnyRole && r != is {
		return failf(ROLE, "the server is a %s, want a %s", is, r)
	}
	return nil
}
