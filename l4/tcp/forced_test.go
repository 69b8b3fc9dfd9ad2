package tcp_test

import (
	"testing"
	"time"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/wire"
)

// Every connection that is ended by force is reset on both sides, also if nothing is
// owed to either: a FIN, or in TLS a close_notify, would tell of a complete stream.
func TestForcedEndsAreResets(t *testing.T) {
	for _, m := range modes {
		if m.proxyIn || m.sni || m.proxyOut != 0 {
			continue
		}
		for name, c := range map[string]struct {
			want l4.Outcome
			end  func(*proxy)
		}{
			"idle":         {l4.Idle, func(*proxy) {}},
			"killed":       {l4.Killed, func(p *proxy) { p.Kill(l4.Killed) }},
			"drained":      {l4.Drained, func(p *proxy) { p.Kill(l4.Drained) }},
			"closed":       {l4.Killed, func(p *proxy) { p.Close() }},
			"backend down": {l4.BackendDown, func(p *proxy) { p.CloseBackend(p.pool.Backends()[0], l4.BackendDown, 0) }},
			"maintenance":  {l4.Drained, func(p *proxy) { p.CloseBackend(p.pool.Backends()[0], l4.Drained, time.Millisecond) }},
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				behind := make(chan error, 1)
				p := m.through(t, func(e end) {
					e.Write([]byte("hello"))
					for b := make([]byte, 100); ; {
						if _, err := e.Read(b); err != nil {
							behind <- err
							return
						}
					}
				}, func(r *tcp.Route) {
					if r.Spec.Idle = 0; c.want == l4.Idle {
						r.Spec.Idle = 300 * time.Millisecond
					}
				})
				e := m.client(t, p.dial())
				e.Write([]byte("x"))
				b := make([]byte, 100)
				if n, err := e.Read(b); string(b[:n]) != "hello" {
					t.Fatalf("%q, %v", b[:n], err)
				}
				c.end(p)
				if n, err := e.Read(b); n > 0 || !isReset(err) {
					t.Errorf("the client sees %q, %v", b[:n], err)
				}
				if err := <-behind; !isReset(err) {
					t.Errorf("the backend sees %v", err)
				}
				p.outcome(c.want)
			})
		}
	}
}

// However a client is refused, it sees the same: a reset.
func TestRefusalsAreResets(t *testing.T) {
	full := func(queue balance.Queue) func(*tcp.Route) {
		return func(r *tcp.Route) {
			spec := r.To.Pool.Spec()
			spec.Queue, spec.Backends[0].MaxConnections = queue, 1
			r.To.Pool.Update(spec)
		}
	}
	stating := func(r *tcp.Route) {
		trusting(wire.AcceptAny)(r)
		r.Spec.FirstBytes = 300 * time.Millisecond
	}
	for name, c := range map[string]struct {
		want   l4.Outcome
		adjust func(*tcp.Route)
		first  bool   // another client is there already
		says   string // what the client begins with
	}{
		"no backend":    {l4.NoBackend, func(r *tcp.Route) { r.To.Pool.Update(balance.Spec{Name: "pool", Algorithm: "first"}) }, false, ""},
		"service full":  {l4.RefusedLimit, func(r *tcp.Route) { r.Spec.MaxConnections = 1 }, true, ""},
		"backends full": {l4.RefusedLimit, full(balance.Queue{}), true, ""},
		"queue timeout": {l4.QueueTimeout, full(balance.Queue{Size: 1, Timeout: 50 * time.Millisecond}), true, ""},
		"denied":        {l4.RefusedACL, admitting(admit.Spec{Deny: prefixes("127.0.0.0/8")}), false, ""},
		"rate":          {l4.RefusedRate, admitting(admit.Spec{SourceRate: 1}), true, ""},
		"per source":    {l4.RefusedLimit, admitting(admit.Spec{PerSource: 1}), true, ""},
		"PROXY header":  {l4.BadProxyHeader, stating, false, "nonsense"},
		"first bytes":   {l4.FirstBytesTimeout, stating, false, "PROXY"},
		"hello": {l4.BadTLSHello, func(r *tcp.Route) {
			mode{sni: true}.apply(t)(r)
		}, false, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, one(echo(t)), c.adjust)
			if c.first {
				exchange(t, p.dial())
			}
			err := p.refused(c.says)
			if !isReset(err) {
				t.Errorf("the client sees %v", err)
			}
			p.outcome(c.want)
		})
	}
	t.Run("connect", func(t *testing.T) {
		p := start(t, one(dead(t)))
		if err := p.refused(); !isReset(err) {
			t.Errorf("the client sees %v", err)
		}
		p.outcome(l4.ConnectFailed)
	})
}
