package daemon

import (
	"fmt"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/sock"
)

const (
	// leastConnections is how many connections there has to be room for at the least:
	// with fewer, what is called ready serves hardly anything.
	leastConnections   = 8
	descriptorsOfAConn = 2 // of TCP: the client's and the backend's
	descriptorsOfALoop = 2 // an epoll instance and what wakes it
	// ownDescriptors are those of the Go runtime's poller, of which some processes have
	// none yet when they are counted.
	ownDescriptors = 2
)

// enoughDescriptors returns an error if the process's limit leaves too few to serve
// this configuration with n loops, when everything else has as many open as given.
// Such a process would start, and then refuse its clients.
func enoughDescriptors(file *config.File, n, others int) error {
	fixed := others + ownDescriptors + n*descriptorsOfALoop
	for _, s := range file.Services {
		fixed += n * len(s.Listen())
	}
	for _, door := range []string{file.Admin.Socket, file.Admin.HTTP} {
		if door != "" {
			fixed++
		}
	}
	switch file.Log.Access {
	case "none", "stdout":
	default:
		fixed++
	}
	limit, least := sock.DescriptorLimit(), sock.LeastLimit(fixed+leastConnections*descriptorsOfAConn)
	if limit >= least {
		return nil
	}
	return fmt.Errorf("the limit of open files is %d, and this configuration takes %d at the least: "+
		"%d for loops, listeners and the process itself, %d for %d connections, and %d that are kept back for checks and the admin interface. "+
		"Raise it: LimitNOFILE= in the unit, ulimit -n %d before a start by hand",
		limit, least, fixed, leastConnections*descriptorsOfAConn, leastConnections, sock.KeptBackOf(least), least)
}
