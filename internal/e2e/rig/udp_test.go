package rig

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"
)

// Two parts of the tests that run at once never have the same port.
func TestUDPAddrOfAnotherProcess(t *testing.T) {
	if taken := os.Getenv("POISE_TEST_TAKEN"); taken != "" {
		nextUDPPort.Store(uint32(netip.MustParseAddrPort(taken).Port()) - firstUDPPort - 1 + udpPorts)
		if addr := UDPAddr(t); addr == taken {
			t.Error(addr, "is taken")
		}
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), "POISE_TEST_TAKEN="+UDPAddr(t))
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
