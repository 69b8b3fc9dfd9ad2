package health

import (
	"context"
	"io"
	"net"
	"time"
)

// tcpProber connects and asks nothing: the backend is healthy if its kernel
// completes the handshake.
type tcpProber struct{ dialer }

var tcpCheck = Check{Word: "tcp", New: newTCPProber, Fails: connecting}

func newTCPProber(s Spec, network, address string) Prober {
	return tcpProber{s.dialer(network, address)}
}

// Probe connects, then closes as a client that has nothing to say.
func (p tcpProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	closePolitely(ctx, conn)
	return nil
}

// How long and how much a probe listens after it has ended its own side. A
// greeting server sends within a round trip or two of the handshake, an SMTP
// server that delays its banner within some 300 ms, and both end their side when
// they see ours ended. No greeting comes near the size.
const (
	farewellTime  = 500 * time.Millisecond
	farewellBytes = 64 << 10
)

// closePolitely ends our side, reads what the other one says until it has ended
// its own, within the limits of farewell, and closes. Closing at once would not
// do: a close with unread data sends a reset (RFC 9293, section 3.6.1 and RFC
// 2525, section 2.17), which servers that greet first count as an aborted client,
// and some ban the address for it.
//
// Whoever comes here knows the answer, so none of it counts as time to answer.
func closePolitely(ctx context.Context, conn net.Conn) {
	answered(ctx)
	defer conn.Close()
	if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return // reset by the other side: nobody is left to be polite to
	}
	farewell(ctx, conn, conn)
}

// farewell reads on from r, which reads from conn, within farewellTime,
// farewellBytes and the deadline of ctx.
func farewell(ctx context.Context, conn net.Conn, r io.Reader) {
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()
	stop := setDeadline(ctx, conn)
	defer stop()
	_, _ = io.CopyN(io.Discard, r, farewellBytes) // however it ends, what follows is a close
}
