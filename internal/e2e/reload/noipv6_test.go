package reload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// withoutIPv6 starts a process on a host whose kernel has no IPv6: what a seccomp filter
// makes of socket(AF_INET6). The filter can only be set by the process itself, so the test
// binary is what is started, sets it and becomes the process.
func withoutIPv6(t *testing.T) func(*exec.Cmd) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *exec.Cmd) {
		become, err := json.Marshal(append([]string{c.Path}, c.Args...))
		if err != nil {
			t.Fatal(err)
		}
		c.Path, c.Args, c.Env = self, []string{self}, append(os.Environ(), becomeWithoutIPv6+"="+string(become))
	}
}

const becomeWithoutIPv6 = "POISE_TEST_BECOME_WITHOUT_IPV6"

func init() {
	become, ok := os.LookupEnv(becomeWithoutIPv6)
	if !ok {
		return
	}
	os.Unsetenv(becomeWithoutIPv6)
	var words []string
	err := json.Unmarshal([]byte(become), &words)
	if err == nil {
		runtime.LockOSThread() // the filter is the thread's; exec keeps that of the thread that calls it
		err = refuseIPv6()
	}
	if err == nil {
		err = syscall.Exec(words[0], words[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "without IPv6:", err)
	os.Exit(1)
}

// refuseIPv6 has socket(AF_INET6, ...) fail with EAFNOSUPPORT in this thread.
func refuseIPv6() error {
	const number, family = 0, 16 // offsets in struct seccomp_data; the low half of the first argument
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: family},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_INET6, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// Case O-53: on a host without IPv6 `:PORT` is every IPv4 address, for TCP, UDP and the
// page of the admin; a backend with an IPv6 address is down, for that reason, and nothing
// else suffers.
func TestHostWithoutIPv6(t *testing.T) {
	t.Parallel()
	db, teller := rig.Backend(t, "db1", loadgen.Behaviour{}), rig.StartTeller(t, "u1")
	port := func(address string) string { return address[strings.LastIndex(address, ":"):] }
	var listen, listenUDP []string
	var services, text strings.Builder
	for i, host := range []string{"127.0.0.1", "", "0.0.0.0"} {
		listen, listenUDP = append(listen, rig.EveryIPv4(t)), append(listenUDP, rig.UDPAddr(t))
		fmt.Fprintf(&services, "  tcp%d: {listen: [%q], pool: web}\n", i, host+port(listen[i]))
		fmt.Fprintf(&services, "  udp%d: {listen: [%q], pool: udp, protocol: udp}\n", i, host+port(listenUDP[i]))
	}
	check := "check: {type: tcp, interval: 100ms, fast_interval: 100ms, fall: 1}"
	fmt.Fprintf(&text, "services:\n%spools:\n", services.String())
	fmt.Fprintf(&text, "  web: {backends: [{name: db1, address: %q}, {name: six, address: '[::1]:80'}], %s}\n", db.Addr(), check)
	fmt.Fprintf(&text, "  udp: {backends: [%q], check: {type: none}}\n", teller)
	pageEverywhere := func(c *exec.Cmd) { // its host is 127.0.0.1 otherwise
		file := filepath.Join(filepath.Dir(c.Args[len(c.Args)-1]), "conf.d", "admin.yaml")
		own, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, bytes.Replace(own, []byte(`http: "127.0.0.1:`), []byte(`http: ":`), 1), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := rig.Start(t, text.String(), pageEverywhere, withoutIPv6(t))

	rig.Eventually(t, "the IPv6 backend to be down", func() bool { return p.Backend(t, "web", "six").State == "down" })
	if b := p.Backend(t, "web", "six"); !strings.Contains(fmt.Sprintf("%+v", b), "address family not supported") {
		t.Errorf("the reason is not that there is no IPv6: %+v", b)
	}
	for i := range listen {
		for range 4 {
			if name := rig.Dial(t, listen[i]).MustAsk(t); name != "db1" {
				t.Errorf("TCP listener %d is served by %q", i, name)
			}
		}
		if name, _ := rig.DialUDP(t, listenUDP[i]).MustAsk(t); name != "u1" {
			t.Errorf("UDP listener %d is served by %q", i, name)
		}
	}
}
