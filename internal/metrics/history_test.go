package metrics

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// Any sequence of reloads and traffic: the promises hold, the connection gauge
// is the number of leases, and a name has series exactly while it is configured
// or has connections.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		src := &fake{checks: map[balance.BackendID]health.Status{}, ejections: map[balance.BackendID]uint64{}}
		collector := New(src, "1.2.3")
		var p promise
		type lease struct {
			balance.Lease
			pool string
		}
		var leases []*lease
		pools := map[string]*balance.Pool{} // configured
		leaving := []*balance.Pool{}
		names := []string{"a", "b", "c"}

		rt.Repeat(map[string]func(*rapid.T){
			"reload": func(rt *rapid.T) {
				var specs []balance.BackendSpec
				for _, name := range names {
					if port := rapid.Uint16Range(0, 2).Draw(rt, name); port > 0 {
						specs = append(specs, backendSpec(name, port))
					}
				}
				name := rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "pool")
				if pool := pools[name]; pool != nil {
					pool.Update(poolSpec(name, specs...))
				} else {
					pools[name] = balance.New(poolSpec(name, specs...), nil)
				}
				clear(src.ejections)
			},
			"remove pool": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "pool")
				if pool := pools[name]; pool != nil {
					pool.Update(poolSpec(name))
					leaving = append(leaving, pool)
					delete(pools, name)
				}
			},
			"connect": func(rt *rapid.T) {
				for _, pool := range pools {
					if l, err := pool.Acquire(flow(1), nil); err == nil {
						l.Backend().Stats.Connections.Add(1)
						l.Backend().Stats.ConnectTime.Observe(rapid.Just(time.Millisecond).Draw(rt, "took"))
						src.ejections[l.Backend().ID()]++
						leases = append(leases, &lease{l, pool.Name()})
					}
				}
			},
			"end": func(rt *rapid.T) {
				if len(leases) == 0 {
					return
				}
				i := rapid.IntRange(0, len(leases)-1).Draw(rt, "which")
				leases[i].Backend().Stats.BytesOut.Add(100)
				leases[i].Release()
				leases = append(leases[:i], leases[i+1:]...)
			},
			"": func(rt *rapid.T) {
				src.pools = nil
				want := map[string]float64{}
				for _, pool := range pools {
					src.pools = append(src.pools, pool)
					for _, b := range pool.Backends() {
						want[pool.Name()+"/"+b.Name()] = 0
					}
				}
				for i := 0; i < len(leaving); i++ {
					if leaving[i].Active() == 0 {
						leaving = append(leaving[:i], leaving[i+1:]...)
						i--
					}
				}
				src.pools = append(src.pools, leaving...)
				for _, l := range leases {
					want[l.pool+"/"+l.Backend().Name()]++
				}
				s := collect(t, collector)
				p.check(t, s)
				got := map[string]float64{}
				for k, m := range s {
					if strings.HasPrefix(k, "poise_backend_connections{") {
						got[label(labelOf(m, "pool")+"/"+labelOf(m, "backend"))] = number(m)
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					rt.Fatal("connections (-want +got):", d)
				}
				if t.Failed() {
					rt.FailNow()
				}
			},
		})
	})
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Scrapes by several at once, amid traffic and reloads.
func TestConcurrentScrapes(t *testing.T) {
	pool := balance.New(poolSpec("p", backendSpec("a", 1), backendSpec("b", 2)), nil)
	svc := &tcp.Service{Name: "s"}
	src := &fake{pools: []*balance.Pool{pool}, services: []*tcp.Service{svc}}
	reg := registry(src)
	stop := make(chan struct{})
	var work, scrapes sync.WaitGroup
	work.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if i%2 == 0 {
				pool.Update(poolSpec("p", backendSpec("a", 1)))
			} else {
				pool.Update(poolSpec("p", backendSpec("a", 1), backendSpec("b", 2)))
			}
		}
	})
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			svc.Stats.Accepted.Add(1)
			svc.Stats.Handshakes.Add(1) // every one resumes
			svc.Stats.Resumed.Add(1)
			if l, err := pool.Acquire(flow(1), nil); err == nil {
				l.Backend().Stats.Connections.Add(1)
				l.Backend().Stats.ConnectTime.Observe(time.Millisecond)
				l.Release()
			}
			svc.Stats.Outcomes[l4.OK].Add(1)
		}
	})
	for range 3 {
		scrapes.Go(func() {
			var p promise
			for range 20 {
				s := gather(t, reg)
				p.check(t, s)
				ended, began := number(s["poise_sessions_total{outcome=ok,service=s}"]), number(s["poise_service_connections_total{service=s}"])
				if ended > began {
					t.Errorf("%v ended of %v", ended, began)
				}
			}
		})
	}
	scrapes.Wait()
	close(stop)
	work.Wait()
}
