package balance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// unnamed is poolSpec with backends that have no name of their own, but their address.
func unnamed(weights ...int) Spec {
	spec := poolSpec("maglev", weights...)
	for i, b := range spec.Backends {
		spec.Backends[i].Name = b.Addr.String()
	}
	return spec
}

// places is the table by addresses, in short.
func places(tb testing.TB, spec Spec) string {
	tb.Helper()
	own := picker[*maglev](tb, New(spec, nil))
	var b strings.Builder
	for _, i := range own.table {
		b.WriteString(own.members[i].Addr().String() + " ")
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}

// Both boxes of a pair map alike, also while one of them already runs the next release:
// a change of these values breaks every client's affinity once. Those without a secret
// are older than secrets, and than names that do not count.
func TestMaglevPinned(t *testing.T) {
	unix := unnamed(100, 100)
	unix.Backends[1].Addr = Address{Unix: "/run/b1.sock"}
	unix.Backends[1].Name = "unix:/run/b1.sock"
	for _, c := range []struct {
		name string
		spec Spec
		want string
	}{
		{"one", unnamed(100), "d4bb3bd853b9c892"},
		{"five", unnamed(equal(5)...), "c6559556ad56fa07"},
		{"weighted", unnamed(100, 50, 1), "9d845d9df24f95e6"},
		{"many", unnamed(equal(200)...), "b306f39f8e1ceb9c"},
		{"unix", unix, "46590d68c27f2ef0"},
	} {
		if got := places(t, c.spec); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for secret, want := range map[string]string{"": "2231422103240210", "sixteen bytes, or": "3214440210141112"} {
		spec, got := unnamed(equal(5)...), ""
		spec.Seed = SeedOf(secret)
		p := New(spec, nil)
		for i := range 16 {
			name := touch(t, p, flow(i))
			got += string(name[len("10.0.0.")])
		}
		if got != want {
			t.Errorf("16 clients with secret %q: got %s, want %s", secret, got, want)
		}
	}
	if got := SeedOf("sixteen bytes, or"); got != 0xe7e9b354afaa6a55 {
		t.Errorf("the seed is %#x", got)
	}
}

// A client begins at the slot that the vectors give, which C shares.
func TestMaglevBeginsByVectors(t *testing.T) {
	text, err := os.ReadFile("../testdata/hash.txt")
	if err != nil {
		t.Fatal(err)
	}
	own, n := picker[*maglev](t, New(poolSpec("maglev", equal(5)...), nil)), 0
	for line := range bytes.Lines(text) {
		var addr []byte
		var port uint16
		var seed, hash, slot uint64
		if _, err := fmt.Sscanf(string(line), "%x %d %x %x %d", &addr, &port, &seed, &hash, &slot); err != nil || seed != maglevSeed || port != 0 {
			continue
		}
		n++
		a, _ := netip.AddrFromSlice(addr)
		f := l4.Flow{Client: netip.AddrPortFrom(a, 4711)}
		if at, _ := bits.Mul64(own.key(f), maglevSlots); at != slot || own.Pick(f, nil) != own.members[own.table[slot]].Backend {
			t.Errorf("%s begins at %d, want %d", a, at, slot)
		}
	}
	if n < 5 {
		t.Errorf("only %d vectors", n)
	}
}

// What a backend is called moves no client, not even where two change names, as those
// that a name leads to do when the name server lists them in another order.
func TestMaglevIgnoresNames(t *testing.T) {
	spec := poolSpec("maglev", 100, 50, 25)
	want := places(t, spec)
	spec.Backends[0].Name, spec.Backends[1].Name = spec.Backends[1].Name, spec.Backends[0].Name
	if places(t, spec) != want {
		t.Error("two change names: the table changed")
	}
	spec.Backends[2].Name = "another"
	if places(t, spec) != want {
		t.Error("one is renamed: the table changed")
	}
	spec = poolSpec("maglev", 100, 50)
	spec.Backends[1].Addr = spec.Backends[0].Addr
	p := New(spec, nil)
	before := slots(t, p)
	slices.Reverse(spec.Backends)
	if !slices.Equal(before, slots(t, New(spec, nil))) {
		t.Error("of two with one address the order decides")
	}
}

// Two boxes with one secret choose alike. With another secret, or none, a client's backend
// is another one as if drawn, so that nothing learned without it helps to aim.
func TestSeedIsShared(t *testing.T) {
	const n, size = 20000, 4
	box := func(secret string) *Pool {
		spec := poolSpec("maglev", equal(size)...)
		spec.Seed = SeedOf(secret)
		return New(spec, nil)
	}
	one, two, other, none := box("a secret of ours"), box("a secret of ours"), box("a secret of others"), box("")
	counts := map[string]int{}
	pairs := map[string]float64{}
	for i := range n {
		own := touch(t, one, flow(i))
		if second := touch(t, two, flow(i)); second != own {
			t.Fatalf("client %d: %s and %s", i, own, second)
		}
		counts["other "+own+touch(t, other, flow(i))]++
		counts["none "+own+touch(t, none, flow(i))]++
	}
	for _, b := range one.Backends() {
		for _, o := range one.Backends() {
			pairs["other "+b.Name()+o.Name()] = 1. / size / size / 2
			pairs["none "+b.Name()+o.Name()] = 1. / size / size / 2
		}
	}
	fits(t, counts, pairs)
}

// A new secret is used at once, also by an algorithm that nothing else has changed for,
// and by the comparison of two.
func TestSeedChangesWithUpdate(t *testing.T) {
	spec := poolSpec("maglev", equal(5)...)
	ab := poolSpec("", 100)
	ab.AB = &AB{A: "first", B: "random", Split: 0.5}
	p, q := New(spec, nil), New(ab, nil)
	of := func() (text string) {
		for i := range 50 {
			l := acquire(t, q, flow(i))
			text += touch(t, p, flow(i)) + l.Strategy()
			l.Release()
		}
		return text
	}
	seen := map[string]bool{of(): true}
	for i := range 3 {
		spec.Seed = uint64(i + 1)
		ab.Seed = spec.Seed
		p.Update(spec)
		q.Update(ab)
		seen[of()] = true
	}
	if len(seen) != 4 {
		t.Errorf("four seeds, and %d ways to choose", len(seen))
	}
}
