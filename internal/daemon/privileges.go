package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capabilities is a set of them, a bit for each.
type capabilities uint32

const (
	// mayBind is all that a reload may need: a new listener below port 1024.
	mayBind capabilities = 1 << unix.CAP_NET_BIND_SERVICE
	// mayForge is for pools with source: client, and for services that refuse by silence.
	// A configuration without either gives it up, and a later one with one takes a restart.
	mayForge capabilities = 1 << unix.CAP_NET_ADMIN
)

// keepOnly gives up every other capability, for good, and so does whatever the
// process may ever execute. It is called before the threads of the data path exist,
// but must change those that do, which Go can only do in a binary without cgo: with
// it, nothing is dropped and the error says so.
//
// Not among them are CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, which would keep
// every file of the host readable: configuration and logs belong to the user who
// runs the daemon. Nor is CAP_SYS_RESOURCE, which exempts from the limit on pipe
// memory of fs.pipe-user-pages-soft; beyond it bulk transfers get small pipes,
// and an administrator raises the limit for whichever user runs the daemon.
func keepOnly(keep capabilities) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("no_new_privs: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if have[0].Permitted&(1<<unix.CAP_SETPCAP) != 0 {
		last, err := lastCapability()
		if err != nil {
			return err
		}
		for c := range last + 1 {
			// Whatever is executed never needs more; and once CAP_SETPCAP is gone
			// nothing more can be taken from this set.
			if mayBind&(1<<c) != 0 {
				continue
			}
			if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 {
				return fmt.Errorf("bounding set: %w", errno)
			}
		}
	}
	kept := have[0].Permitted & uint32(keep)
	want := [2]unix.CapUserData{{Permitted: kept, Effective: kept}}
	// The header's Pid is 0: the calling thread, which is each in turn.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&want[0])), 0); errno != 0 {
		return fmt.Errorf("capset: %w", errno)
	}
	return nil
}

// explainDenied adds what surprises root about a permission that is denied.
func explainDenied(o Options, err error) error {
	if o.Standalone && os.Getuid() == 0 && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; root gives up CAP_DAC_OVERRIDE here: files and folders must be root's own, or poise run by their owner", err)
	}
	return err
}

// lastCapability is the highest one that this kernel knows.
func lastCapability() (int, error) {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
