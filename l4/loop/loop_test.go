package loop_test

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4/loop"
	"github.com/poise-lb/poise/l4/sock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T) *loop.Loop {
	t.Helper()
	l, err := loop.New()
	if err != nil {
		t.Fatal(err)
	}
	go l.Run()
	t.Cleanup(l.Stop)
	return l
}

// on runs f on the loop and waits for it.
func on(t *testing.T, l *loop.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Post(func() { f(); close(done) }) {
		t.Fatal("the loop has stopped")
	}
	<-done
}

// pair returns two connected TCP sockets: a raw descriptor and a net.Conn.
func pair(t *testing.T) (int, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	file, err := near.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return fd, far
}

type handler func(sock.Events)

func (h handler) Ready(ev sock.Events) { h(ev) }

type expirer func(*loop.Timer)

func (e expirer) Expired(t *loop.Timer) { e(t) }

func TestEventsReachTheirHandler(t *testing.T) {
	l := run(t)
	fd, far := pair(t)
	got := make(chan sock.Events, 16)
	on(t, l, func() {
		if err := l.Add(fd, handler(func(ev sock.Events) { got <- ev })); err != 0 {
			t.Error(err)
		}
	})
	if ev := <-got; ev&sock.Writable == 0 {
		t.Errorf("a fresh socket reports %#x", ev)
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if ev := <-got; ev&sock.Readable == 0 {
		t.Errorf("after a byte: %#x", ev)
	}
	far.Close()
	if ev := <-got; ev&sock.ReadHup == 0 {
		t.Errorf("after a FIN: %#x", ev)
	}
	on(t, l, func() { l.Remove(fd); sock.Close(fd) })
}

// An event that was collected for a descriptor must not reach the handler of its
// successor with the same number.
func TestEventOfClosedDescriptorIsDropped(t *testing.T) {
	l := run(t)
	first, far := pair(t)
	second, _ := pair(t)
	var stray atomic.Bool
	on(t, l, func() {
		l.Add(first, handler(func(sock.Events) {}))
		l.Again(first, sock.Readable) // still to be served when the number changes hands
		l.Remove(first)
		sock.Close(first)
		if err := syscall.Dup3(second, first, 0); err != nil {
			t.Error(err)
		}
		l.Add(first, handler(func(ev sock.Events) {
			if ev == sock.Readable { // what Again was given; the kernel reports Writable too
				stray.Store(true)
			}
		}))
	})
	far.Close()
	on(t, l, func() {})
	on(t, l, func() {})
	if stray.Load() {
		t.Error("the new handler got the old descriptor's event")
	}
	on(t, l, func() { l.Remove(first); sock.Close(first); sock.Close(second) })
}

func TestAgainComesBack(t *testing.T) {
	l := run(t)
	fd, _ := pair(t)
	done := make(chan struct{})
	n := 0
	on(t, l, func() {
		l.Add(fd, handler(func(sock.Events) {
			if n++; n < 100 {
				l.Again(fd, sock.Readable)
			} else if n == 100 {
				close(done)
			}
		}))
	})
	<-done
	on(t, l, func() { l.Remove(fd); sock.Close(fd) })
}

func TestTimers(t *testing.T) {
	l := run(t)
	const d = 30 * time.Millisecond
	expired := make(chan time.Duration, 1)
	var timer, stopped loop.Timer
	stopped.Owner = expirer(func(*loop.Timer) { t.Error("a stopped timer expired") })
	var started time.Duration
	timer.Owner = expirer(func(*loop.Timer) { expired <- l.Precise() - started })
	on(t, l, func() {
		started = l.Precise()
		l.Start(&timer, d)
		l.Start(&stopped, d)
		l.Start(&timer, d) // restarting moves it
		l.StopTimer(&stopped)
	})
	if took := <-expired; took < d-time.Millisecond {
		t.Errorf("expired after %v, before its time", took)
	}
	on(t, l, func() {
		if timer.Running() {
			t.Error("an expired timer runs")
		}
	})
}

func TestIdleLoopBlocks(t *testing.T) {
	l := run(t)
	on(t, l, func() {})
	before := l.Rounds()
	time.Sleep(300 * time.Millisecond)
	if n := l.Rounds() - before; n > 20 {
		t.Errorf("%d rounds while nothing happened", n)
	}
	on(t, l, func() {})
	if l.Waited() <= 0 {
		t.Error("no time waited")
	}
}

func TestPostAfterStop(t *testing.T) {
	l, err := loop.New()
	if err != nil {
		t.Fatal(err)
	}
	go l.Run()
	before, _ := os.ReadDir("/proc/self/fd")
	ran := false
	l.Post(func() { ran = true })
	l.Stop()
	l.Stop()
	if !ran {
		t.Error("what was posted before Stop did not run")
	}
	if l.Post(func() { t.Error("ran after Stop") }) {
		t.Error("Post after Stop was accepted")
	}
	after, _ := os.ReadDir("/proc/self/fd")
	if len(before)-len(after) != 2 {
		t.Errorf("%d descriptors freed, want 2", len(before)-len(after))
	}
}

// A handler that always has more to do gets one turn a round, also when the
// kernel reports new events meanwhile.
func TestAgainIsOneTurnARound(t *testing.T) {
	l := run(t)
	fd, far := pair(t)
	turns := map[uint64]int{}
	again := true
	on(t, l, func() {
		l.Add(fd, handler(func(sock.Events) {
			turns[l.Rounds()]++
			if again {
				l.Again(fd, sock.Readable)
			}
		}))
	})
	for range 50 {
		far.Write([]byte("x"))
		time.Sleep(time.Millisecond)
	}
	on(t, l, func() {
		again = false
		for _, n := range turns {
			if n > 2 { // the event and the turn that was asked for
				t.Errorf("%d turns in one round", n)
				break
			}
		}
	})
	on(t, l, func() { l.Remove(fd); sock.Close(fd) })
}

// What epoll does not take, a file for one, can be removed like anything else.
func TestRemoveAfterFailedAdd(t *testing.T) {
	l := run(t)
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	on(t, l, func() {
		if errno := l.Add(int(f.Fd()), handler(func(sock.Events) {})); errno == 0 {
			t.Error("a file was added")
		}
		l.Remove(int(f.Fd()))
	})
}
