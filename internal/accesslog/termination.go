package accesslog

import "github.com/poise-lb/poise/l4"

// termination returns the two letters HAProxy would log (its configuration
// manual, "Session state at disconnection"): what ended the session, and in
// which phase it was.
//
// The first letter:
//
//   - both sides closed in order       C, S  the client, the backend aborted
//     c, s  the client, the backend did not answer in time
//     P  Poise refused it (a limit)       R  a resource of this host ran out
//     D  its backend went down            K  killed by the operator (stop, drain)
//
// The second: R before the client had sent what a backend is chosen by (PROXY
// header, ClientHello, TLS handshake), Q before a backend was chosen, C while
// connecting, D while relaying data, L the backend had finished and the last bytes
// were on their way to the client.
//
// What a client is turned away for, by what it is or by what it sent first, is
// PR: HAProxy logs so what "tcp-request content reject" turns away and requests it
// cannot parse. A client that has not said enough in time is cR, as with HAProxy's
// "timeout http-request"; one that breaks a TLS handshake off itself, CR.
func termination(s *l4.Session) (why, phase byte) {
	phase = 'D'
	switch {
	case s.Wait < 0 && s.QueuePos == 0: // had it got past its first bytes, it would have been queued
		phase = 'R'
	case s.Wait < 0:
		phase = 'Q'
	case s.Connect < 0:
		phase = 'C'
	}
	switch s.Outcome {
	case l4.OK:
		return '-', '-'
	case l4.ClientReset:
		return 'C', phase
	case l4.BackendReset:
		return 'S', phase
	case l4.Idle:
		switch {
		case s.By == l4.Backend:
			return 's', phase
		case s.Flow.Proto == l4.UDP: // it had to make room; see l4/udp
			return 'R', phase
		}
		return 'c', phase
	case l4.HalfCloseTimeout:
		if s.By == l4.Client {
			return 'c', 'L'
		}
		return 's', phase
	case l4.NoBackend, l4.ConnectFailed: // HAProxy too logs SC when no server is left
		return 'S', 'C'
	case l4.ConnectTimeout:
		return 's', 'C'
	case l4.RefusedLimit:
		return 'P', 'C'
	case l4.RefusedACL, l4.RefusedRate, l4.BadProxyHeader, l4.BadTLSHello:
		return 'P', 'R'
	case l4.FirstBytesTimeout:
		return 'c', 'R'
	case l4.TLSFailed:
		if s.By == l4.Client {
			return 'C', 'R'
		}
		return 'P', 'R'
	case l4.QueueTimeout:
		return 's', 'Q'
	case l4.QueueFull:
		return 'P', 'Q'
	case l4.BackendDown:
		return 'D', phase
	case l4.Drained, l4.Killed:
		return 'K', phase
	case l4.NoLocalPort, l4.NoDescriptors:
		return 'R', 'C'
	}
	return 'I', phase // an outcome this list does not know; a test keeps it complete
}
