package config

import (
	"testing"

	"pgregory.net/rapid"
)

// TestCircles compares with a matrix of what leads where (S. Warshall 1962).
func TestCircles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "n")
		next, leads := make([][]int, n), make([][]bool, n)
		for i := range leads {
			leads[i] = make([]bool, n)
			leads[i][i] = true
		}
		node := rapid.IntRange(0, n-1)
		for range rapid.IntRange(0, 2*n).Draw(t, "hops") {
			from, to := node.Draw(t, "from"), node.Draw(t, "to")
			leads[from][to] = true
			next[from] = append(next[from], to)
		}
		for via := range n {
			for from := range n {
				for to := range n {
					leads[from][to] = leads[from][to] || leads[from][via] && leads[via][to]
				}
			}
		}
		got := circles(next)
		for a := range n {
			for b := range n {
				if want := leads[a][b] && leads[b][a]; (got[a] == got[b]) != want {
					t.Fatalf("%d and %d are together: %v, want %v", a, b, !want, want)
				}
			}
		}
	})
}
