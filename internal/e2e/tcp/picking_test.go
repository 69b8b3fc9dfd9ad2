package tcp

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Mission: P2C over 4 backends with fixed loads. Of two drawn at random the less
// loaded one is taken: the most loaded never, the least with probability 1/2, the
// others with 1/3 and 1/6.
func TestPowerOfTwoChoices(t *testing.T) {
	const draws = 1200
	// So far apart that a sample that is not quite over yet changes no order.
	held := [4]int{0, 5, 10, 15}
	want := [4]float64{1. / 2, 1. / 3, 1. / 6, 0}
	db := [4]*loadgen.Backend{}
	for i := range db {
		db[i] = rig.Backend(t, fmt.Sprintf("db%d", i+1), loadgen.Behaviour{})
	}
	listen := rig.Addr(t)
	// Weights decide who gets the connections that are held.
	yaml := func(only int) string {
		members := make([]string, len(db))
		for i, b := range db {
			weight := 0
			if only < 0 || only == i {
				weight = 100
			}
			members[i] = rig.Member(b.Name(), b.Addr(), fmt.Sprintf("weight: %d", weight))
		}
		return rig.WebConfig(listen, "", "balance: p2c, check: {type: none}", members...)
	}
	p := rig.Start(t, yaml(0))
	for i, n := range held {
		p.MustReload(t, yaml(i))
		for range n {
			if name := rig.Dial(t, listen).MustAsk(t); name != db[i].Name() {
				t.Fatalf("%s is held", name)
			}
		}
	}
	p.MustReload(t, yaml(-1))
	for i, n := range held {
		if b := p.Backend(t, "web", db[i].Name()); b.Connections != int64(n) {
			t.Fatalf("%+v", b)
		}
	}
	served, failed := rig.AskTimes(listen, draws)
	t.Logf("%v of %d", served, draws)
	for i, share := range want {
		n, mean := float64(served[db[i].Name()]), draws*share
		// Five standard deviations: one run in a million is further off.
		if math.Abs(n-mean) > 5*math.Sqrt(mean*(1-share)) || failed != 0 {
			t.Errorf("%s: %v of %d, want about %v; %d failed", db[i].Name(), n, draws, mean, failed)
		}
	}
}

// Case O-07: weight 0 means none, under each algorithm.
func TestWeightZeroGetsNone(t *testing.T) {
	const connections = 2000
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	yaml := func(balance string) string {
		return rig.WebConfig(listen, "", "balance: "+balance+", check: {type: none}",
			rig.Member("db1", db[0].Addr()), rig.Member("db2", db[1].Addr()), rig.Member("db3", db[2].Addr(), "weight: 0"))
	}
	var p *rig.Proc
	for _, balance := range []string{"round-robin", "least-conn", "p2c", "maglev, hash: {key: source-port}"} {
		if p == nil {
			p = rig.Start(t, yaml(balance))
		} else {
			p.MustReload(t, yaml(balance))
		}
		res, err := loadgen.Run(t.Context(), loadgen.Options{
			Addr: listen, Clients: 8, Requests: connections, PerConnection: 1, Size: 16, Timeout: rig.Patience,
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.Requests != connections || res.Failed != 0 {
			t.Errorf("%s: %d served, errors %+v", balance, res.Requests, res.Errors)
		}
		if n := db[2].Stats().Accepted; n != 0 {
			t.Errorf("%s: %d connections to a backend of weight 0", balance, n)
		}
	}
}

// Case O-07: connections that are open when the weight becomes 0 stay.
func TestWeightZeroKeepsConnections(t *testing.T) {
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	yaml := func(weights ...int) string {
		members := make([]string, len(db))
		for i, b := range db {
			members[i] = rig.Member(b.Name(), b.Addr(), fmt.Sprintf("weight: %d", weights[i]))
		}
		return rig.WebConfig(listen, "", "balance: round-robin, check: {type: none}", members...)
	}
	p := rig.Start(t, yaml(0, 0, 1))
	var open []*rig.Client
	for range 5 {
		open = append(open, rig.Dial(t, listen))
		open[len(open)-1].MustAsk(t)
	}
	p.MustReload(t, yaml(100, 100, 0))
	served, failed := rig.AskTimes(listen, 50)
	if failed != 0 || !maps.Equal(served, map[string]int{"db1": 25, "db2": 25}) {
		t.Errorf("%v, %d failed", served, failed)
	}
	for _, c := range open {
		if name := c.MustAsk(t); name != "db3" {
			t.Errorf("%s answered", name)
		}
	}

	p.MustReload(t, yaml(0, 0, 0))
	checkRefusals(t, p, listen)
	for _, c := range open {
		if name := c.MustAsk(t); name != "db3" {
			t.Errorf("%s answered", name)
		}
	}
	p.MustReload(t, yaml(0, 1, 0))
	if name, err := rig.Ask(listen); name != "db2" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}

// Case O-07: backends that would all answer, and whose checks all fail.
func TestAllChecksFail(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer site.Close()
	_, port, err := net.SplitHostPort(site.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	db := rig.ThreeBackends(t)
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "", "balance: least-conn, check: {type: http, port: "+port+", interval: 100ms, fast_interval: 100ms, fall: 2}",
		rig.Member("db1", db[0].Addr(), "weight: 1"), rig.Member("db2", db[1].Addr(), "weight: 1"), rig.Member("db3", db[2].Addr(), "weight: 1")))
	rig.Eventually(t, "all to be down", func() bool { return p.Status(t).Pools[0].Eligible == 0 })
	checkRefusals(t, p, listen)
	for _, b := range db {
		if n := b.Stats().Accepted; n != 0 {
			t.Errorf("%s got %d connections", b.Name(), n)
		}
	}
}

// checkRefusals expects that a service with no eligible backend ends every
// connection at once, is at rest, says why, and does not go on about it.
func checkRefusals(t *testing.T, p *rig.Proc, listen string) {
	t.Helper()
	p.Log.Reset()
	const series = `poise_sessions_total{outcome="no_backend",service="web"}`
	refused, cpu, began := p.Metrics(t)[series], p.CPU(t), time.Now()
	n := 0
	var waits []time.Duration
	for ; time.Since(began) < 2*time.Second; n++ {
		asked := time.Now()
		if name, err := rig.Ask(listen); err == nil {
			t.Fatalf("%s answered", name)
		}
		waits = append(waits, time.Since(asked))
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(began)
	late := 0
	for _, w := range waits {
		if w > 100*time.Millisecond {
			late++ // now and then the machine is busy
		}
	}
	if late > n/10 {
		t.Errorf("%d of %d were refused late: %v", late, n, waits)
	}
	if used := p.CPU(t) - cpu; used > took/3 {
		t.Errorf("%v of CPU in %v", used, took)
	}
	if got := p.Metrics(t)[series] - refused; got != float64(n) {
		t.Errorf("%v of %d refusals are counted", got, n)
	}
	said := strings.Count(p.Stderr(), "no eligible backend")
	if most := int(took/time.Second) + 2; said < 1 || said > most {
		t.Errorf("the log says so %d times in %v", said, took)
	}
}
