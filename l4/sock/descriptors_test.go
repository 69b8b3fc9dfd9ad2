package sock

import "testing"

// What is given back or taken while descriptors are counted does not count as
// anybody else's.
func TestDescriptorsWhileCounting(t *testing.T) {
	for name, during := range map[string]func(d *Descriptors){
		"given back": func(d *Descriptors) { d.Give(30) },
		"taken":      func(d *Descriptors) { d.Take(30) },
		"neither":    func(*Descriptors) {},
	} {
		var d Descriptors
		d.measure(func() int { return 20 })
		if !d.Take(30) {
			t.Fatal("they are too few")
		}
		open := 50
		if name == "taken" {
			open = 80
		}
		d.measure(func() int { during(&d); return open })
		if n := d.base.Load(); n != 20 {
			t.Errorf("%s: %d count as somebody else's", name, n)
		}
	}
}

// Those who share have half of it; the others may have all.
func TestDescriptorShare(t *testing.T) {
	var d Descriptors
	d.measure(func() int { return 20 })
	limit := d.limit.Load()
	n := int64(0)
	for d.TakeShare(1) {
		n++
	}
	if n != limit/2 {
		t.Errorf("%d of %d", n, limit)
	}
	for d.Take(1) {
		n++
	}
	if n != limit || d.TakeShare(1) {
		t.Errorf("%d of %d", n, limit)
	}
	d.GiveShare(1)
	if !d.TakeShare(1) || d.TakeShare(1) || d.Take(1) {
		t.Error("one was given back, not more")
	}
}

// The least limit leaves what was asked for, and one less does not.
func TestLeastLimit(t *testing.T) {
	for n := range 5000 {
		limit := LeastLimit(n)
		if limit-KeptBackOf(limit) < n || limit-1-KeptBackOf(limit-1) >= n {
			t.Fatalf("%d for %d", limit, n)
		}
	}
}
