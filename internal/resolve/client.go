package resolve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// patience is how long one server has for one answer, the repetition over TCP
// included. A recursive server that takes longer has the answer the next time.
const patience = time.Second

// udpSize is what a server may send in one datagram: what passes everywhere
// without being fragmented, by the DNS flag day of 2020.
const udpSize = 1232

// client asks DNS servers.
type client struct {
	system *system
}

func newClient(resolvConf, hosts string) *client {
	return &client{newSystem(resolvConf, hosts)}
}

// negative is a server's word that there is nothing to be found.
type negative struct {
	why      string
	nxdomain bool // nor is there anything of another type under that name
	ttl      time.Duration
}

func (n *negative) Error() string { return n.why }

// exchange asks the servers in turn until one has something to say about the
// name: records, or that there are none, which is an error of type *negative. Any
// other error says what went wrong with each of the servers.
func (c *client) exchange(ctx context.Context, servers []netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	if _, ok := dns.IsDomainName(name); !ok || name == "" {
		return nil, fmt.Errorf("%q is not a name", name)
	}
	if len(servers) == 0 {
		return nil, errors.New("there is no server to ask")
	}
	var errs []error
	for _, server := range servers {
		m, err := ask(ctx, server, name, qtype)
		if err == nil {
			if err = verdict(m); err == nil {
				return m, nil
			}
			if n := (*negative)(nil); errors.As(err, &n) {
				n.why = fmt.Sprintf("%s %s: %s from %s", dns.TypeToString[qtype], name, n.why, server)
				return nil, n
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("%s %s: %w from %s", dns.TypeToString[qtype], name, err, server))
	}
	return nil, errors.Join(errs...)
}

// verdict returns nil for a message with records of the type that was asked for,
// *negative for one that says that there are none, and another error for one that
// says nothing about the name.
func verdict(m *dns.Msg) error {
	q := m.Question[0]
	switch m.Rcode {
	case dns.RcodeNameError:
		return &negative{why: "NXDOMAIN", nxdomain: true, ttl: negativeTTL(m)}
	case dns.RcodeSuccess:
	default:
		return errors.New(rcode(m.Rcode))
	}
	if len(chain(m, q.Qtype)) > 0 {
		return nil
	}
	// RFC 2308 section 2.2: neither an SOA record nor any answer, but name servers:
	// this server sends us on to others, which recursive ones do not.
	delegated := false
	for _, rr := range m.Ns {
		switch rr.Header().Rrtype {
		case dns.TypeSOA:
			return &negative{why: "no records", ttl: negativeTTL(m)}
		case dns.TypeNS:
			delegated = true
		}
	}
	if delegated && !m.Authoritative && len(m.Answer) == 0 {
		return errors.New("a referral")
	}
	return &negative{why: "no records", ttl: negativeTTL(m)}
}

func rcode(code int) string {
	if s, ok := dns.RcodeToString[code]; ok {
		return s
	}
	return fmt.Sprintf("response code %d", code)
}

// negativeTTL is how long it may be taken that something does not exist: RFC 2308
// section 5. 0 without an SOA record.
func negativeTTL(m *dns.Msg) time.Duration {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return seconds(min(sane(soa.Hdr.Ttl), sane(soa.Minttl)))
		}
	}
	return 0
}

func seconds(ttl uint32) time.Duration { return time.Duration(ttl) * time.Second }

// sane returns a record's TTL. RFC 2181 section 8: one with the highest bit set
// is 0.
func sane(ttl uint32) uint32 {
	if ttl > 1<<31-1 {
		return 0
	}
	return ttl
}

// chain returns the records of a type that the question leads to, by way of CNAME
// records, with the TTL of each lowered to the least on its way.
func chain(m *dns.Msg, qtype uint16) (rrs []dns.RR) {
	at, ttl := m.Question[0].Name, ^uint32(0)
	for range len(m.Answer) + 1 { // each step uses a record, or there is a loop
		next := ""
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, at) {
				continue
			}
			if h.Rrtype == qtype {
				h.Ttl = min(sane(h.Ttl), ttl)
				rrs = append(rrs, rr)
			} else if alias, ok := rr.(*dns.CNAME); ok && next == "" {
				next, ttl = alias.Target, min(ttl, sane(h.Ttl))
			}
		}
		if len(rrs) > 0 || next == "" {
			return rrs
		}
		at = next
	}
	return nil
}

// ask puts one question to one server and returns its answer.
func ask(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype) // draws an id
	q.SetEdns0(udpSize, false)
	m, err := send(ctx, "udp", server, q)
	if err == nil && m.IsEdns0() == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		// RFC 6891 section 7: a server that knows nothing of EDNS.
		q.Extra, q.Id = nil, dns.Id()
		m, err = send(ctx, "udp", server, q)
	}
	if err == nil && m.Truncated {
		q.Id = dns.Id()
		m, err = send(ctx, "tcp", server, q)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("no answer within " + patience.String())
	}
	return m, err
}

// send makes one query over a socket of its own. Datagrams that are not the
// answer to it are passed over: late ones, and forged ones.
func send(ctx context.Context, network string, server netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, reason(ctx, err)
	}
	conn := &dns.Conn{Conn: raw, UDPSize: dns.MaxMsgSize}
	defer conn.Close()
	// A context ends the waiting at any time, as a deadline in the past.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := conn.WriteMsg(q); err != nil {
		return nil, reason(ctx, err)
	}
	for {
		m, err := conn.ReadMsg()
		switch {
		case err == nil && answers(m, q):
			return m, nil
		case err == nil:
			err = errors.New("an answer to another question")
		}
		if network == "tcp" || ctx.Err() != nil || broken(err) {
			return nil, reason(ctx, err)
		}
	}
}

// answers reports whether m is a response to q. A response to a query that the
// server could not read may come without the question.
func answers(m, q *dns.Msg) bool {
	if !m.Response || m.Id != q.Id || m.Opcode != dns.OpcodeQuery {
		return false
	}
	if len(m.Question) == 0 && m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		m.Question = q.Question
	}
	if len(m.Question) != 1 {
		return false
	}
	a, b := m.Question[0], q.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// broken tells an error of the socket from one of a datagram's content.
func broken(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF)
}

// reason is err without the addresses, which the caller knows, and what the
// context says if it is to blame.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
