package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// dnsProber asks a DNS server one question (RFC 1035). A datagram with another id
// need not be the server's (RFC 5452, section 9.1) and is passed over; on a TCP
// connection it is the server's own mistake. So is another question under our id.
type dnsProber struct {
	udp, tcp dialer
	spec     DNSQuery
	question dns.Question
	rcode    int
	answer   string // in canonical form, see recordData
}

var dnsCheck = Check{Word: "dns", New: newDNSProber, Fails: append(asking, DNS), Datagrams: true}

func newDNSProber(s Spec, network, address string) Prober {
	p := &dnsProber{
		udp: s.dialer("udp", address), tcp: s.dialer(network, address), spec: s.DNS,
		question: dns.Question{
			Name:   dns.Fqdn(s.DNS.Name),
			Qtype:  dns.StringToType[cmp.Or(s.DNS.Type, "A")],
			Qclass: dns.ClassINET,
		},
		rcode: dns.StringToRcode[cmp.Or(s.DNS.RCode, "NOERROR")],
	}
	if s.DNS.Answer != "" {
		p.answer = canonicalAnswer(s.DNS.Answer, p.question)
	}
	return p
}

// Check returns what is wrong with the question or the expected answer, in words
// for people, or nil.
func (d DNSQuery) Check() error {
	typ := cmp.Or(d.Type, "A")
	qtype, known := dns.StringToType[typ]
	switch _, isName := dns.IsDomainName(d.Name); {
	case !isName:
		return fmt.Errorf("%q is not a domain name", d.Name)
	case !known || notData[qtype]:
		return fmt.Errorf("%q is not a type of records; write one such as A, AAAA, SOA or TXT", typ)
	case d.RCode != "" && !slices.Contains(RCodes, d.RCode):
		return fmt.Errorf("%q is not a response code; write one of %s", d.RCode, strings.Join(RCodes, ", "))
	case d.Answer == "":
		return nil
	}
	if _, err := parseAnswer(d.Answer, qtype); err != nil {
		return fmt.Errorf("%q is not what a record of type %s says", d.Answer, typ)
	}
	return nil
}

// RCodes are the response codes a DNS check can expect (RFC 1035, RFC 2136).
var RCodes = []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}

// notData are types that no record in an answer has: pseudo-types and questions
// about whole zones.
var notData = map[uint16]bool{
	dns.TypeNone: true, dns.TypeReserved: true, dns.TypeOPT: true, dns.TypeTKEY: true, dns.TypeTSIG: true,
	dns.TypeIXFR: true, dns.TypeAXFR: true, dns.TypeMAILA: true, dns.TypeMAILB: true, dns.TypeANY: true,
}

func parseAnswer(data string, qtype uint16) (dns.RR, error) {
	if strings.ContainsAny(data, "\r\n") {
		return nil, errors.New("more than one line")
	}
	rr, err := dns.NewRR(". 0 IN " + dns.TypeToString[qtype] + " " + data)
	if err == nil && rr == nil {
		err = errors.New("empty")
	}
	return rr, err
}

// canonicalAnswer writes data as recordData does, so that the two compare: "::01"
// is "::1". Text that is no such data stays and matches nothing.
func canonicalAnswer(data string, q dns.Question) string {
	rr, err := parseAnswer(data, q.Qtype)
	if err != nil {
		return data
	}
	return recordData(rr)
}

// recordData is what a record says, without whose it is and for how long. Names
// in it compare without regard to case, which is close enough to right for text.
func recordData(rr dns.RR) string {
	return strings.ToLower(strings.TrimPrefix(rr.String(), rr.Header().String()))
}

// Probe asks, over UDP first if not told otherwise, and judges the answer.
func (p *dnsProber) Probe(ctx context.Context) error {
	if !p.spec.TCP {
		truncated, err := p.overUDP(ctx)
		if !truncated {
			return err
		}
	}
	return p.overTCP(ctx)
}

// overUDP asks once. A truncated answer decides nothing (RFC 2181, section 9).
func (p *dnsProber) overUDP(ctx context.Context) (truncated bool, err error) {
	conn, err := p.udp.dialDatagrams(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := setDeadline(ctx, conn)
	defer stop()
	query, packed, err := p.query()
	if err != nil {
		return false, err
	}
	if _, err := conn.Write(packed); err != nil {
		return false, p.ioFailure(err, nil)
	}
	var stray error // why the last datagram that came did not count
	buf := make([]byte, dns.MaxMsgSize)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			unanswered(ctx, conn)
			return false, p.ioFailure(err, stray)
		}
		resp, ours, err := dnsReply(query, buf[:n])
		switch {
		case !ours:
			stray = err
		case err != nil:
			return false, err
		case resp.Truncated:
			return true, nil
		default:
			return false, p.judge(resp)
		}
	}
}

// overTCP asks on a connection (RFC 7766).
func (p *dnsProber) overTCP(ctx context.Context) error {
	conn, err := p.tcp.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	query, packed, err := p.query()
	if err != nil {
		return err
	}
	framed := &dns.Conn{Conn: conn}
	if _, err := framed.Write(packed); err != nil {
		return answerFailure(err)
	}
	buf := make([]byte, dns.MaxMsgSize)
	n, err := framed.Read(buf)
	if err != nil {
		return answerFailure(err)
	}
	resp, _, err := dnsReply(query, buf[:n])
	if err == nil {
		err = p.judge(resp)
	}
	answered(ctx)
	return err
}

// query is the question under a new random id. Recursion is desired, as a client
// of a resolver would; a server that offers none does not mind.
func (p *dnsProber) query() (*dns.Msg, []byte, error) {
	m := &dns.Msg{Question: []dns.Question{p.question}}
	m.Id = dns.Id()
	m.RecursionDesired = true
	packed, err := m.Pack()
	if err != nil {
		return nil, nil, failf(L7RSP, "the question cannot be asked: %w", err)
	}
	return m, packed, nil
}

// ioFailure is why no answer came. A port without a server answers by ICMP, which
// is as good as a refused connection.
func (p *dnsProber) ioFailure(err, stray error) error {
	if local := localFailure(err); local != nil {
		return local
	}
	switch {
	case timedOut(err) && stray != nil:
		return stray
	case timedOut(err):
		return answerFailure(err)
	}
	return &Failure{L4CON, bare(err)}
}

// dnsReply unpacks a message that answers query, and reports whether it has its
// id, be it an answer or not.
func dnsReply(query *dns.Msg, packed []byte) (resp *dns.Msg, ours bool, err error) {
	resp = &dns.Msg{}
	malformed := resp.Unpack(packed) // the header is unpacked first
	ours = len(packed) >= dnsHeaderSize && resp.Response && resp.Id == query.Id
	switch {
	case len(packed) < dnsHeaderSize:
		err = failf(L7RSP, "not a DNS message")
	case !resp.Response:
		err = failf(L7RSP, "a question instead of an answer")
	case resp.Id != query.Id:
		err = failf(L7RSP, "the answer's id is %d, the question's %d", resp.Id, query.Id)
	case malformed != nil && !resp.Truncated: // which may be cut off anywhere
		err = failf(L7RSP, "a broken DNS message: %w", malformed)
	case resp.Opcode != query.Opcode:
		err = failf(L7RSP, "the answer is to another kind of request")
	case len(resp.Question) == 0 && resp.Rcode != dns.RcodeSuccess && resp.Rcode != dns.RcodeNameError:
		// A server that cannot read the question, or will not, need not repeat it.
	case len(resp.Question) != 1 || !sameDNSQuestion(resp.Question[0], query.Question[0]):
		err = failf(L7RSP, "the answer is to another question")
	}
	return resp, ours, err
}

const dnsHeaderSize = 12 // RFC 1035, section 4.1.1

func sameDNSQuestion(a, b dns.Question) bool {
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// judge is what the answer says about the server.
func (p *dnsProber) judge(resp *dns.Msg) error {
	if resp.Rcode != p.rcode {
		return failf(L7STS, "the response code is %s, want %s",
			cmp.Or(dns.RcodeToString[resp.Rcode], fmt.Sprint(resp.Rcode)), dns.RcodeToString[p.rcode])
	}
	if p.answer == "" {
		return nil
	}
	var said []string
	for _, rr := range resp.Answer {
		if rr.Header().Rrtype != p.question.Qtype {
			continue // a CNAME on the way
		}
		data := recordData(rr)
		if data == p.answer {
			return nil
		}
		said = append(said, data)
	}
	if len(said) == 0 {
		return failf(DNS, "the answer has no record of type %s", dns.TypeToString[p.question.Qtype])
	}
	return failf(DNS, "the answer is %s, want %s", strings.Join(said, " or "), p.answer)
}
