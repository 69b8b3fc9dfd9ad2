package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/internal/config"
)

func TestServicePools(t *testing.T) {
	f, err := config.Parse("poise.yaml", []byte(`
services:
  a: {listen: [":1"], pool: x}
  b:
    listen: [":2"]
    sni: {a.example.org: z, b.example.org: [{pool: y, alpn: [h2]}, z], default: x}
  c: {listen: [":1", ":3-4"], protocol: udp, pool: u}
pools:
  u: {backends: [10.0.0.1:80], check: {type: none}}
  x: {backends: [10.0.0.1:80]}
  y: {backends: [10.0.0.1:80]}
  z: {backends: [10.0.0.1:80]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var pools [][]string
	var listeners []int
	for _, s := range f.Services {
		pools = append(pools, s.Pools())
		listeners = append(listeners, len(s.Listen()))
	}
	if diff := cmp.Diff([][]string{{"x"}, {"x", "y", "z"}, {"u"}}, pools); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 1, 3}, listeners); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
}
