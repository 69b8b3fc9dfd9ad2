package tcp

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Case O-10: one backend refuses, one says nothing, one is well. No client
// notices, and each payload arrives once. Nothing is ejected here and two of three
// connects fail, for which the retry budget has to be that large.
func TestDeadBackends(t *testing.T) {
	well := rig.Backend(t, "well", loadgen.Behaviour{Mode: loadgen.Echo})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "retries: 2, timeouts: {connect: 1s}",
		"balance: round-robin, check: {type: none}, passive: {failures: 0}, retry_budget: {percent: 1000}",
		rig.Member("refuses", rig.Addr(t)), rig.Member("mute", rig.MuteAddr(t)), rig.Member("well", well.Addr())))
	const clients, atOnce = 300, 50
	took := echoes(t, listen, clients, atOnce)
	if s := well.Stats(); s.Accepted != clients || s.BytesIn != clients*payload {
		t.Errorf("the backend has seen %+v", s)
	}
	t.Logf("p50 %v, max %v", took[len(took)/2], took[len(took)-1])
	m := p.Metrics(t)
	for _, name := range []string{"refuses", "mute"} {
		if n := m.Sum("poise_backend_connect_failures_total", `backend="`+name+`"`); n < clients/3 {
			t.Errorf("%s failed %v times", name, n)
		}
	}
	if n := m.Sum("poise_retries_total"); n != m.Sum("poise_backend_connect_failures_total") {
		t.Errorf("%v retries", n)
	}
}

// Case O-10: after a refusal the next one is tried at once.
func TestRefusalCostsNoTime(t *testing.T) {
	well := rig.Backend(t, "well", loadgen.Behaviour{Mode: loadgen.Echo})
	listen := rig.Addr(t)
	rig.Start(t, rig.WebConfig(listen, "", "balance: first, check: {type: none}, passive: {failures: 0}",
		rig.Member("refuses", rig.Addr(t)), rig.Member("well", well.Addr())))
	took := echoes(t, listen, 50, 1)
	if median := took[len(took)/2]; median > 100*time.Millisecond {
		t.Errorf("half of them took more than %v", median)
	}
}

// Case O-10: with no backend left to try the client is closed by the total deadline,
// however many retries there would be.
func TestConnectDeadline(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, "retries: 9, timeouts: {connect: 1s, connect_total: "+limit.String()+"}",
		"balance: round-robin, check: {type: none}, passive: {failures: 0}",
		rig.Member("refuses", rig.Addr(t)), rig.Member("mute1", rig.MuteAddr(t)), rig.Member("mute2", rig.MuteAddr(t))))
	began := time.Now()
	c := rig.Connect(t, listen)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a byte out of nowhere")
	}
	if after := time.Since(began); after < limit || after > 10*limit {
		t.Errorf("closed after %v", after)
	}
	rig.Eventually(t, "the outcome", func() bool { return strings.Contains(p.Stdout(), "/connect_timeout ") })
}

// payload is how many bytes each client of echoes sends right after connecting.
const payload = 16

// echoes makes n connections, so many at once, each of which sends a payload and
// wants it back. It returns how long they took, sorted.
func echoes(t *testing.T, listen string, n, atOnce int) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var clients sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for range n {
		turns <- struct{}{}
		clients.Go(func() {
			defer func() { <-turns }()
			began := time.Now()
			if err := echo(listen); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
		})
	}
	clients.Wait()
	slices.Sort(took)
	return took
}

func echo(listen string) error {
	c, err := net.DialTimeout("tcp", listen, rig.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		return err
	}
	sent := strings.Repeat("x", payload)
	if _, err := io.WriteString(c, sent); err != nil {
		return err
	}
	got := make([]byte, payload)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
		return err
	}
	return nil
}
