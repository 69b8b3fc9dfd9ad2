package balance

import "strings"

// Flag is one reason why a backend gets no new flows; a backend carries a set
// of them. Each bit has exactly one writer, so that two writers can never undo
// each other. A backend is eligible when no bit is set and its weight is
// positive.
type Flag uint32

// The reasons, with the writer of each.
const (
	Down       Flag = 1 << iota // the health monitor: failed its checks
	Ejected                     // the outlier detector: real traffic failed
	Drained                     // the operator: finish what is open, nothing new
	Maint                       // the operator: out for maintenance
	Unresolved                  // the resolver: the name has no address now
	Removed                     // Update: no longer configured, still has leases
	Standby                     // the health monitor: well, but in the other role than is wanted
)

var flagNames = [...]string{"down", "ejected", "drain", "maint", "unresolved", "removed", "standby"}

// String returns "up" for no flag, else the flags' words joined by "+", such as
// "down+ejected".
func (f Flag) String() string {
	if f == 0 {
		return "up"
	}
	var words []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	if f>>len(flagNames) != 0 {
		words = append(words, "unknown")
	}
	return strings.Join(words, "+")
}

// State returns the one word for a set of flags that status and metrics show:
// "up", "down", "standby", "ejected", "drain", "maint", "unresolved" or "removed". What was
// asked for goes before what was found out.
func (f Flag) State() string {
	for _, one := range [...]Flag{Removed, Maint, Drained, Unresolved, Down, Standby, Ejected} {
		if f&one != 0 {
			return one.String()
		}
	}
	return Flag(0).String()
}

// halfOpen is the state of a backend without a flag that gets trials only; see
// SetTrial.
const halfOpen = "half-open"

// States lists every word Backend.State can return.
func States() []string { return append([]string{Flag(0).String(), halfOpen}, flagNames[:]...) }
