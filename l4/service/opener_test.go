package service_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/poise-lb/poise/l4"
	"github.com/poise-lb/poise/l4/service"
	"github.com/poise-lb/poise/l4/sock"
)

// bound opens sockets that share an address, as another process would.
func bound(t *testing.T, at l4.Listen, n int) (list []sock.Passed) {
	t.Helper()
	for range n {
		fd, err := sock.Bind(at.Addr, sock.ListenOptions{BindOptions: sock.BindOptions{Share: true}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := sock.Receive(fd)
		sock.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		if p.Addr != at.Addr || !p.Stream || p.V6Only {
			t.Errorf("it is %+v", p)
		}
		list = append(list, p)
	}
	return list
}

// A listener has the sockets that were passed at its address, in their order, and the
// next one of that address has them again. Nothing but the listener's own descriptors is
// ever closed.
func TestPassedSockets(t *testing.T) {
	at, other := free(t), free(t)
	opener := service.NewOpener(bound(t, at, 1))
	defer opener.Close()
	for _, shares := range []bool{true, false} {
		r := startWith(t, opener, func(p *service.Protocol[route, *socket]) { p.Shares = shares })
		for range 2 {
			r.run(r.plan("one", at), r.plan("two", other))
			l, o := r.At(at.Addr.Port())[0], r.At(other.Addr.Port())[0]
			if !l.Passed || o.Passed {
				t.Errorf("passed: %v and %v", l.Passed, o.Passed)
			}
			if own := l.Sockets[1].Descriptor() >= 0; own != shares || l.Sockets[0].Descriptor() < 0 {
				t.Errorf("the workers' descriptors are %d and %d", l.Sockets[0].Descriptor(), l.Sockets[1].Descriptor())
			}
			r.run(r.plan("two", other))
			if l.Sockets[0].turns.Load() != 0 || l.Withdrawn() {
				t.Error("what waits in the socket is not left to the next listener")
			}
		}
		r.Close()
	}
	if got := opener.Unserved([]l4.Listen{at}, nil); len(got) != 0 {
		t.Errorf("unserved: %v", got)
	}
	if got := opener.Unserved([]l4.Listen{other}, []l4.Listen{at}); !slices.Equal(got, []string{"tcp " + at.String()}) {
		t.Errorf("unserved: %v", got)
	}
}

// Clients of a socket that no worker reads would wait in vain.
func TestTooManyPassedSockets(t *testing.T) {
	at := free(t)
	opener := service.NewOpener(bound(t, at, 3))
	defer opener.Close()
	r := startWith(t, opener, nil)
	if _, err := r.Prepare([]plan{r.plan("one", at)}); err == nil || !strings.Contains(err.Error(), "passes 3 sockets for it") {
		t.Error(err)
	}
}

// The dual-stack wildcard and that of IPv6 are two addresses; elsewhere the option means
// nothing.
func TestPlacesOfPassedSockets(t *testing.T) {
	wildcard := netip.MustParseAddrPort("[::]:80")
	for _, c := range []struct {
		passed sock.Passed
		listen l4.Listen
		want   []string
	}{
		{sock.Passed{FD: -1, Stream: true, Addr: wildcard}, l4.Listen{Addr: wildcard}, nil},
		{sock.Passed{FD: -1, Stream: true, Addr: wildcard}, l4.Listen{Addr: wildcard, V6Only: true}, []string{"tcp :80"}},
		{sock.Passed{FD: -1, Stream: true, Addr: wildcard, V6Only: true}, l4.Listen{Addr: wildcard}, []string{"tcp [::]:80"}},
		{sock.Passed{FD: -1, Stream: true, Addr: netip.MustParseAddrPort("[fd00::1]:80")}, l4.Listen{Addr: netip.MustParseAddrPort("[fd00::1]:80"), V6Only: true}, nil},
		{sock.Passed{FD: -1, Addr: wildcard}, l4.Listen{Addr: wildcard}, []string{"udp :80"}},
	} {
		if got := service.NewOpener([]sock.Passed{c.passed}).Unserved([]l4.Listen{c.listen}, nil); !slices.Equal(got, c.want) {
			t.Errorf("%+v and %+v: %v", c.passed, c.listen, got)
		}
	}
}
