package daemon

import (
	"fmt"
	"time"
)

// stuckAfter is how long a log may take nothing before that is a problem.
const stuckAfter = time.Second

// problems says what is wrong with the process itself. The log cannot tell that it is
// not read.
func (d *Daemon) problems() (list []string) {
	if t := d.logging.lines.Stuck(); t >= stuckAfter {
		list = append(list, fmt.Sprintf("nothing has read the log for %s: %d messages are lost (poise_log_dropped_total)",
			t.Truncate(time.Second), d.logging.lines.Lost()))
	}
	if t := d.access.Stuck(); t >= stuckAfter {
		list = append(list, fmt.Sprintf("nothing has read the access log for %s: %d lines are lost (poise_accesslog_dropped_total)",
			t.Truncate(time.Second), d.access.Dropped()))
	}
	return list
}
