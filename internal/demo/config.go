package demo

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// configuration is the configuration of the demonstration's daemon. Times that
// decide how soon it reacts follow the length of the script, so that a short
// one shows the same.
func configuration(balance, socket string, http, listen netip.AddrPort, backends []*loadgen.Backend, cycle time.Duration) string {
	interval := min(max(cycle/30, 100*time.Millisecond), time.Second)
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }

	var b strings.Builder
	fmt.Fprintf(&b, `admin:
  socket: %s
  http: %s
  state: ""
log:
  access: none
services:
  demo:
    listen: [%q]
    pool: db
    timeouts: {connect: 250ms}
pools:
  db:
    balance: %s
`, socket, http, listen.String(), balance)
	if balance == "maglev" {
		b.WriteString("    hash: {key: source-port}     # all clients have one address here\n")
	}
	b.WriteString("    backends:\n")
	for _, s := range backends {
		fmt.Fprintf(&b, "      - {name: %s, address: %q}\n", s.Name(), s.Addr().String())
	}
	fmt.Fprintf(&b, `    check:
      type: tcp
      interval: %s
      fast_interval: %s
      down_interval: %s
      timeout: %s
      rise: 3
      fall: 2
    passive: {failures: 3, base: %s, max: %s}
`, ms(interval), ms(interval/2), ms(interval), ms(interval/2), ms(2*interval), ms(4*interval))
	return b.String()
}
