package sock

import (
	"os"

	"golang.org/x/sys/unix"
)

// DescriptorLimit returns the process's limit of open files (RLIMIT_NOFILE).
func DescriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024 // POSIX's customary soft limit; getrlimit does not fail
	}
	return int(min(r.Cur, 1<<30))
}

// OpenDescriptors counts the process's open files, or returns 0 without /proc.
func OpenDescriptors() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d) - 1 // the directory itself
}
