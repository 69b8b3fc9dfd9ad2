package tcp_test

import (
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// A connection whose beginning has been looked at waits in its pool's queue like any
// other, and takes what it has said along.
func TestQueueBehindFront(t *testing.T) {
	for _, m := range []mode{{name: "PROXY in", proxyIn: true}, {name: "TLS", front: true, back: true}, {name: "SNI", sni: true}} {
		t.Run(m.name, func(t *testing.T) {
			b := m.serve(t, func(e end) {
				b := make([]byte, 100)
				for {
					n, err := e.Read(b)
					if err != nil {
						return
					}
					e.Write(b[:n])
				}
			})
			b.MaxConnections = 1
			p := start(t, one(b), m.apply(t), func(r *tcp.Route) {
				pool := balance.New(balance.Spec{
					Name: "queueing", Algorithm: "first", Backends: one(b), Queue: balance.Queue{Size: 10, Timeout: time.Hour},
				}, nil)
				to := r.To
				if to == nil {
					to = &tcp.Upstream{}
				}
				to.Pool = pool
				if r.SNI != nil {
					r.SNI = tcp.NewSNI([]tcp.SNIRule{{Name: "a.test", To: to}})
				}
			})
			first := m.client(t, p.dial())
			if err := ping(first); err != nil {
				t.Fatal(err)
			}
			second, third := m.client(t, p.dial()), m.client(t, p.dial())
			done := make(chan error, 2)
			go func() { done <- ping(second) }()
			eventually(t, "the second to wait", func() bool { return p.waitingIn("queued") >= 1 })
			go func() { done <- ping(third) }()
			eventually(t, "the third to wait", func() bool { return p.waitingIn("queued") == 2 })
			first.Close()
			if err := <-done; err != nil {
				t.Errorf("the one that waited: %v", err)
			}
			p.Kill(l4.Killed)
			<-done
			p.ended(3)
		})
	}
}

// waitingIn counts the connections in a state.
func (p *proxy) waitingIn(state string) (n int) {
	for _, c := range p.Conns(100, "", "") {
		if c.State == state {
			n++
		}
	}
	return n
}
