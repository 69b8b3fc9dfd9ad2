package control

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4/balance"
)

var compareOrders = cmp.Options{cmpopts.IgnoreUnexported(Order{}), cmpopts.SortSlices(func(a, b Order) bool { return a.Address < b.Address })}

// kept is an operator whose file is at path, and what it logs.
func kept(path string) (*operator, *bytes.Buffer) {
	var log bytes.Buffer
	o := newOperator(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	o.load(path)
	return o, &log
}

func (o *operator) all() (list []Order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.held {
		list = append(list, h)
	}
	return list
}

// What holds after a pool has become what the configuration says.
func TestReconcile(t *testing.T) {
	now := time.Now()
	addr := func(last byte) balance.Address {
		return balance.Address{Unix: fmt.Sprintf("/%d", last)}
	}
	key := memberKey("p", addr(1))
	spec := func(weight int, hosts ...byte) balance.Spec {
		s := balance.Spec{Name: "p"}
		for _, n := range hosts {
			s.Backends = append(s.Backends, balance.BackendSpec{Name: "b", Addr: addr(n), Weight: weight})
		}
		return s
	}
	drained := Order{Pool: "p", Backend: "b", Address: addr(1).String(), State: "drain"}
	weighed := Order{Pool: "p", Backend: "b", Address: addr(1).String(), Weight: pointer(7), FileWeight: 100}
	both := weighed
	both.State = "maint"
	edited := drained
	edited.State = "maint"
	other := drained
	other.Pool = "q"
	for _, c := range []struct {
		name       string
		before     Order
		spec       balance.Spec
		discovered bool
		after      Order
	}{
		{"drain stays", drained, spec(50, 1, 2), false, drained},
		{"weight stays", weighed, spec(100, 1, 2), false, weighed},
		{"the file is edited", weighed, spec(50, 1), false, Order{}},
		{"edited to what the operator said", weighed, spec(7, 1), false, Order{}},
		{"a state outlives an edited weight", both, spec(50, 1), false, edited},
		{"gone", drained, spec(100, 2), false, Order{}},
		{"not found for now", both, spec(100, 2), true, both},
		{"another pool's", other, spec(100, 2), false, other},
	} {
		o, _ := kept("")
		o.set(key, c.before)
		o.unsaved = false
		o.reconcile(c.spec, c.discovered, now)
		got := o.due(key)
		if diff := cmp.Diff(c.after, got, compareOrders); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		if changed := !cmp.Equal(c.before, got, compareOrders); o.unsaved != changed {
			t.Errorf("%s: to be written: %v", c.name, o.unsaved)
		}
	}

	// What came from a name is remembered for a while, from when it went.
	o, _ := kept("")
	o.set(key, drained)
	for _, step := range []struct {
		after time.Duration
		hosts []byte
		want  string
	}{
		{0, []byte{2}, "drain"},
		{absence - 1, nil, "drain"},
		{absence, []byte{1}, "drain"},
		{2 * absence, []byte{2}, "drain"},
		{3*absence - 1, []byte{2}, "drain"},
		{3 * absence, []byte{2}, ""},
	} {
		o.reconcile(spec(100, step.hosts...), true, now.Add(step.after))
		if got := o.due(key).State; got != step.want {
			t.Errorf("after %s: %q", step.after, got)
		}
	}
	o.set(key, drained)
	o.forget([]*Pool{{Pool: config.Pool{Balance: balance.Spec{Name: "q"}}}})
	if len(o.all()) != 0 {
		t.Error("a pool that is gone is remembered")
	}
}
