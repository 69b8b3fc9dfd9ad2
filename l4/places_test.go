package l4_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/poise-lb/poise/l4"
)

func TestPlaces(t *testing.T) {
	var p l4.Places
	const limit = 3
	for i := range limit {
		if !p.Take(limit) || p.Taken() != int64(i+1) {
			t.Fatalf("place %d is not to be had", i+1)
		}
	}
	if p.Take(limit) || p.Taken() != limit {
		t.Error("one too many is let in")
	}
	if !p.Take(0) || p.Taken() != limit+1 {
		t.Error("0 is a limit")
	}
	p.Give()
	p.Give()
	if !p.Take(limit) || p.Taken() != limit {
		t.Error("a place that was given back is not to be had")
	}
}

// Never more than the limit, whoever looks.
func TestPlacesAtOnce(t *testing.T) {
	var p l4.Places
	const limit = 4
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5000 {
				if !p.Take(limit) {
					continue
				}
				if n := p.Taken(); n < 1 || n > limit {
					t.Errorf("%d are taken", n)
				}
				p.Give()
			}
		})
	}
	all.Wait()
	if p.Taken() != 0 {
		t.Errorf("%d are left", p.Taken())
	}
}

// The limit holds over two that count in one word.
func TestPlacesInAWord(t *testing.T) {
	var word atomic.Int64
	one := l4.PlacesIn(&word)
	word.Add(2) // another data path's
	if one.Take(2) || !one.Take(3) || one.Take(3) || one.Taken() != 3 || word.Load() != 3 {
		t.Errorf("%d are taken, the word says %d", one.Taken(), word.Load())
	}
	if left := one.Give(); left != 2 || word.Load() != 2 {
		t.Errorf("%d are left", left)
	}
}
