package health

import (
	"net/netip"
	"sync"
	"testing"
	"time"
)

// Loops report while reloads come and go; the race detector watches. In the end
// nobody fails and the fast path is back.
func TestOutlierConcurrency(t *testing.T) {
	var f flags
	spec := PassiveSpec{Failures: 2, Base: time.Microsecond, Max: time.Millisecond, MaxPercent: 60, Checked: true}
	o := NewOutlier(spec, f.set)
	keys := []string{"a", "b", "c", "d", "e"}
	o.Update(spec, keys)
	var running sync.WaitGroup
	for loop := range 4 {
		running.Go(func() {
			for i := range 3000 {
				key := keys[(i+loop)%len(keys)]
				switch ok := (i/len(keys)+loop)%4 == 0; i % 3 {
				case 0:
					o.Connected(key, ok)
				case 1:
					o.Answered(key, ok)
				default:
					o.Doubted(key, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
				}
				if i%100 == 0 {
					o.Status(key)
				}
			}
		})
	}
	running.Go(func() {
		for i := range 300 {
			o.Update(spec, keys[i%3:])
		}
		o.Update(spec, keys)
	})
	running.Wait()
	// Who is half-open by now, or will be, passes.
	for end := time.Now().Add(10 * time.Second); o.failing.Load() != 0 || len(f.outNow()) > 0; time.Sleep(time.Millisecond) {
		for _, key := range keys {
			o.Answered(key, true)
		}
		if time.Now().After(end) {
			t.Fatalf("%d members are counted as failing, out are %v", o.failing.Load(), f.outNow())
		}
	}
	o.Close()
	if f.most > 3 {
		t.Errorf("%d of at most 5 ejected at once", f.most)
	}
	if len(f.out) > 0 {
		t.Errorf("ejected after Close: %v", f.out)
	}
}

func TestOutlierReportDoesNotAllocate(t *testing.T) {
	var f flags
	checked, stranger := passive, netip.MustParseAddr("2001:db8::1")
	checked.Checked = true
	o := NewOutlier(checked, f.set)
	defer o.Close()
	o.Update(checked, []string{"a"}) // a lone one, so that nothing is told
	for name, report := range map[string]func(){
		"success": func() { o.Connected("a", true); o.Answered("a", true) },
		"failure": func() { o.Connected("a", false); o.Answered("a", false) },
		"doubt":   func() { o.Doubted("a", stranger); o.Answered("a", true) },
		"doubts":  func() { o.Doubted("a", stranger) },
		"both":    func() { o.Connected("a", false); o.Answered("a", true) },
	} {
		if n := testing.AllocsPerRun(1000, report); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkOutlierReport(b *testing.B) {
	var f flags
	o := NewOutlier(passive, f.set)
	defer o.Close()
	o.Update(passive, []string{"a", "b", "c"})
	b.Run("success", func(b *testing.B) {
		for b.Loop() {
			o.Connected("a", true)
		}
	})
	o.Connected("b", false)
	b.Run("success while another fails", func(b *testing.B) {
		for b.Loop() {
			o.Connected("a", true)
		}
	})
}
