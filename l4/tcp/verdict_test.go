package tcp_test

import (
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/tcp"
)

// compared makes a pool count what is reported to it: as strategy a.
func compared(r *tcp.Route) {
	spec := r.To.Pool.Spec()
	spec.AB = &balance.AB{A: "first", B: "first", Split: 1}
	r.To.Pool.Update(spec)
}

func (p *proxy) verdicts(reported, failed uint64, evidence ...l4.Evidence) {
	p.t.Helper()
	s := p.pool.Snapshot().Strategies[0]
	if s.Successes != reported || s.Failures != failed {
		p.t.Errorf("reported: %d successes and %d failures, want %d and %d", s.Successes, s.Failures, reported, failed)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.evidence, evidence) {
		p.t.Errorf("evidence %v, want %v", p.evidence, evidence)
	}
}

func TestVerdicts(t *testing.T) {
	silent := func(c *net.TCPConn) { io.Copy(io.Discard, c) }
	t.Run("first byte", func(t *testing.T) {
		p := start(t, one(echo(t)), compared)
		c := p.dial()
		exchange(t, c)
		p.verdicts(1, 0, l4.Answered)
		exchange(t, c)
		c.Close()
		if s := p.outcome(l4.OK); s.Strategy != "a" {
			t.Errorf("strategy %q", s.Strategy)
		}
		p.verdicts(1, 0, l4.Answered)
	})
	t.Run("refused", func(t *testing.T) {
		p := start(t, []balance.BackendSpec{dead(t), echo(t)}, compared)
		exchange(t, p.dial())
		p.verdicts(1, 1, l4.Answered)
	})
	t.Run("reset before the first byte", func(t *testing.T) {
		p := start(t, one(serve(t, func(c *net.TCPConn) {
			io.ReadFull(c, make([]byte, 4))
			reset(c)
		})), compared)
		c := p.dial()
		c.Write([]byte("ping"))
		if _, err := c.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("read: %v", err)
		}
		p.outcome(l4.BackendReset)
		p.verdicts(0, 1, l4.Doubtful)
	})
	t.Run("reset before anybody said anything", func(t *testing.T) {
		p := start(t, one(serve(t, reset)), compared)
		p.refused()
		p.outcome(l4.BackendReset)
		p.verdicts(0, 1, l4.Failed)
	})
	t.Run("reset of a client that is silent for long", func(t *testing.T) {
		p := start(t, one(serve(t, func(c *net.TCPConn) { time.Sleep(1200 * time.Millisecond); reset(c) })), compared)
		p.dial().Read(make([]byte, 1))
		p.outcome(l4.BackendReset)
		p.verdicts(0, 1, l4.Doubtful)
	})
	t.Run("reset of a client whom the backend knows", func(t *testing.T) {
		p := start(t, one(serve(t, reset)), compared, func(r *tcp.Route) { r.To.Proxy.Version = 2 })
		p.refused()
		p.outcome(l4.BackendReset)
		p.verdicts(0, 1, l4.Doubtful)
	})
	t.Run("reset afterwards", func(t *testing.T) {
		p := start(t, one(serve(t, func(c *net.TCPConn) {
			c.Write([]byte("hello"))
			io.ReadFull(c, make([]byte, 4))
			reset(c)
		})), compared)
		c := p.dial()
		io.ReadFull(c, make([]byte, 5))
		c.Write([]byte("ping"))
		c.Read(make([]byte, 1))
		p.outcome(l4.BackendReset)
		p.verdicts(1, 0, l4.Answered)
	})
	t.Run("no answer to a client that has said everything", func(t *testing.T) {
		p := start(t, one(serve(t, func(c *net.TCPConn) {
			silent(c)
			c.SetReadDeadline(time.Time{})
			time.Sleep(time.Second) // longer than the proxy waits
		})), compared, func(r *tcp.Route) { r.Spec.HalfClose = 100 * time.Millisecond })
		c := p.dial()
		c.Write([]byte("ping"))
		c.CloseWrite()
		c.Read(make([]byte, 1))
		p.outcome(l4.HalfCloseTimeout)
		p.verdicts(0, 1, l4.Doubtful)
	})
	t.Run("idle without an answer is no failure", func(t *testing.T) {
		p := start(t, one(serve(t, silent)), compared, func(r *tcp.Route) { r.Spec.Idle = 100 * time.Millisecond })
		c := p.dial()
		c.Write([]byte("a log line"))
		c.Read(make([]byte, 1))
		p.outcome(l4.Idle)
		p.verdicts(0, 0)
	})
	t.Run("a protocol without answers", func(t *testing.T) {
		p := start(t, one(serve(t, silent)), compared)
		c := p.dial()
		c.Write([]byte("a log line"))
		c.Close()
		p.outcome(l4.OK)
		p.verdicts(1, 0, l4.Answered)
	})
	t.Run("a client that only looks", func(t *testing.T) {
		p := start(t, one(serve(t, silent)), compared)
		p.dial().Close()
		p.ended(1)
		p.verdicts(0, 0)
	})
}

// With everything dead each connection costs one connect more than it must, until
// the budget is used up.
func TestRetryBudget(t *testing.T) {
	p := start(t, []balance.BackendSpec{dead(t), named(dead(t), "dead too")}, func(r *tcp.Route) {
		spec := r.To.Pool.Spec()
		spec.Retry = balance.RetryBudget{Floor: 1} // ten in ten seconds
		r.To.Pool.Update(spec)
	})
	const n = 30
	for i := range n {
		p.refused()
		p.ended(i + 1)
	}
	retries := 0
	for _, s := range p.ended(n) {
		if s.Outcome != l4.ConnectFailed {
			t.Errorf("outcome %v", s.Outcome)
		}
		retries += s.Retries
	}
	if retries < 10 || retries >= n { // 10 for each ten seconds that the test takes
		t.Errorf("%d retries of %d connections", retries, n)
	}
}

func named(b balance.BackendSpec, name string) balance.BackendSpec {
	b.Name = name
	return b
}

// Connections are closed over some time, all of them in the end, and those that
// came later not at all.
func TestCloseBackendSpread(t *testing.T) {
	p := start(t, one(echo(t)))
	const n = 30
	for range n {
		exchange(t, p.dial())
	}
	const spread = time.Second
	begun := time.Now()
	time.Sleep(20 * time.Millisecond) // of the loops' clocks: later is later
	p.CloseBackend(p.pool.Backends()[0], l4.BackendDown, spread)
	eventually(t, "the closing to begin", func() bool { return p.Active() < n })
	later := p.dial()
	exchange(t, later)
	ends := make([]time.Duration, n)
	for i, s := range p.ended(n) {
		if s.Outcome != l4.BackendDown {
			t.Errorf("outcome %v", s.Outcome)
		}
		ends[i] = s.Start.Add(s.Total).Sub(begun)
	}
	slices.Sort(ends)
	if first, last := ends[0], ends[n-1]; last-first < spread/2 {
		t.Errorf("all within %v, from %v to %v", last-first, first, last)
	}
	if half := ends[n/2] - ends[0]; half < spread/10 {
		t.Errorf("half of them within %v", half)
	}
	exchange(t, later)
}

// Connections whose bytes are never acknowledged are noticed. A socket filter that
// drops everything makes the backend's kernel as good as gone.
func TestStalled(t *testing.T) {
	deaf := make(chan *net.TCPConn, 10)
	p := start(t, one(serve(t, func(c *net.TCPConn) {
		b := make([]byte, 4)
		io.ReadFull(c, b)
		c.Write(b)
		deaf <- c
		io.Copy(io.Discard, c)
	})))
	b := p.pool.Backends()[0]
	if stalled, all := p.Stalled(b); stalled != 0 || all != 0 {
		t.Errorf("%d of %d", stalled, all)
	}
	var clients []*net.TCPConn
	for range 3 {
		c := p.dial()
		exchange(t, c)
		clients = append(clients, c)
	}
	if stalled, all := p.Stalled(b); stalled != 0 || all != 3 {
		t.Errorf("%d of %d, want none of 3", stalled, all)
	}
	for range 2 {
		c := <-deaf
		dropAll(t, c)
		defer c.Close()
	}
	for _, c := range clients {
		c.Write([]byte("anybody there?"))
	}
	eventually(t, "two to stall", func() bool {
		stalled, all := p.Stalled(b)
		return stalled == 2 && all == 3
	})
	p.Kill(l4.Killed)
}

func dropAll(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := syscall.SockFilter{Code: syscall.BPF_RET | syscall.BPF_K} // keep 0 bytes
	program := syscall.SockFprog{Len: 1, Filter: &nothing}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_SETSOCKOPT, fd, syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER,
			uintptr(unsafe.Pointer(&program)), unsafe.Sizeof(program), 0)
	})
	if err != nil || errno != 0 {
		t.Fatalf("attach filter: %v, %v", err, errno)
	}
}
