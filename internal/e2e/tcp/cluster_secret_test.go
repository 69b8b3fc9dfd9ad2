package tcp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Two boxes with one secret send a client to the same backend, whatever they call the
// backends and in whichever order they list them. Without it clients are elsewhere, and a
// reload brings them there.
func TestBoxesShareTheSecret(t *testing.T) {
	t.Parallel()
	const sources = 300
	db := make([]*loadgen.Backend, 4)
	for i := range db {
		db[i] = rig.Backend(t, fmt.Sprintf("db%d", i+1), loadgen.Behaviour{})
	}
	yaml := func(listen, secret, called string, list ...*loadgen.Backend) string {
		members := make([]string, len(list))
		for i, b := range list {
			members[i] = rig.Member(called+b.Name(), b.Addr())
		}
		return secret + rig.WebConfig(listen, "", "balance: maglev, check: {type: none}", members...)
	}
	clients := make([]netip.Addr, sources)
	for i := range clients {
		clients[i] = netip.AddrFrom4([4]byte{127, byte(1 + i%250), 7, byte(1 + i/250)})
	}
	const secret = "cluster: {secret: \"a secret of both boxes\"}\n"
	reversed := slices.Clone(db)
	slices.Reverse(reversed)
	one, two := rig.Addr(t), rig.Addr(t)
	p := rig.Start(t, yaml(one, secret, "", db...))
	rig.Start(t, yaml(two, secret, "other-", reversed...))
	want := whoServes(t, one, clients)
	if got := whoServes(t, two, clients); !slices.Equal(got, want) {
		t.Error("the boxes choose differently")
	}
	for _, b := range db {
		if n := count(want, b.Name()); n < sources/len(db)/2 || n > sources/len(db)*2 {
			t.Errorf("%s has %d of %d clients", b.Name(), n, sources)
		}
	}

	out := p.MustReload(t, yaml(one, "", "", db...))
	if !slices.Equal(out, []string{"cluster: secret has changed"}) {
		t.Errorf("the reload says %q", out)
	}
	moved := 0
	for i, name := range whoServes(t, one, clients) {
		if name != want[i] {
			moved++
		}
	}
	if moved < sources/2 || moved > sources*9/10 { // three in four, by chance
		t.Errorf("without the secret %d of %d clients are elsewhere", moved, sources)
	}
}
