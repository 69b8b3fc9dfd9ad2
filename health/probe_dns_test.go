package health

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func dnsSpec(q DNSQuery) Spec { return Spec{Type: "dns", DNS: q} }

// dnsServer answers UDP and TCP on one port.
type dnsServer struct {
	address  string
	udp, tcp atomic.Int64 // questions
}

// newDNSServer runs answer for every message over UDP or TCP; what it returns is
// sent as it is, one datagram or framed message each.
func newDNSServer(t *testing.T, answer func(query *dns.Msg, overTCP bool) [][]byte) *dnsServer {
	t.Helper()
	s := &dnsServer{}
	var packets net.PacketConn
	var listener net.Listener
	for range 100 { // a port that is free for both
		var err error
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if listener, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			break
		}
		packets.Close()
	}
	s.address = packets.LocalAddr().String()
	var running sync.WaitGroup
	running.Go(func() {
		buf := make([]byte, dns.MaxMsgSize)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			s.udp.Add(1)
			query := &dns.Msg{}
			if query.Unpack(buf[:n]) == nil {
				for _, message := range answer(query, false) {
					_, _ = packets.WriteTo(message, from)
				}
			}
		}
	})
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(2 * longTimeout))
				framed := &dns.Conn{Conn: conn}
				query, err := framed.ReadMsg()
				if err != nil {
					return
				}
				s.tcp.Add(1)
				for _, message := range answer(query, true) {
					_, _ = framed.Write(message)
				}
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() {
		packets.Close()
		listener.Close()
		running.Wait()
	})
	return s
}

func (s *dnsServer) probe(q DNSQuery, timeout time.Duration) error {
	return probeOnce(dnsSpec(q).Prober("tcp", s.address), timeout)
}

// reply is the answer to query with these records and changes.
func reply(t *testing.T, query *dns.Msg, records []string, changes ...func(*dns.Msg)) []byte {
	t.Helper()
	m := new(dns.Msg).SetReply(query)
	for _, record := range records {
		rr, err := dns.NewRR(record)
		if err != nil {
			t.Error(err)
			return nil
		}
		m.Answer = append(m.Answer, rr)
	}
	for _, change := range changes {
		change(m)
	}
	packed, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return packed
}

func TestDNSAnswers(t *testing.T) {
	records := []string{
		"www.example.test. 60 IN CNAME host.example.test.",
		"host.example.test. 60 IN A 10.0.0.1", "host.example.test. 60 IN A 10.0.0.2",
	}
	s := newDNSServer(t, func(query *dns.Msg, _ bool) [][]byte {
		switch q := query.Question[0]; {
		case strings.EqualFold(q.Name, "www.example.test.") && q.Qtype == dns.TypeA:
			return [][]byte{reply(t, query, records)}
		case q.Name == "example.test." && q.Qtype == dns.TypeMX:
			return [][]byte{reply(t, query, []string{"example.test. 60 IN MX 10 Mail.Example.test."})}
		case q.Name == "example.test." && q.Qtype == dns.TypeTXT:
			return [][]byte{reply(t, query, []string{`example.test. 60 IN TXT "v=1; a b"`})}
		case q.Name == "example.test." && q.Qtype == dns.TypeAAAA:
			return [][]byte{reply(t, query, []string{"example.test. 60 IN AAAA 2001:db8::1"})}
		case q.Name == "empty.test.":
			return [][]byte{reply(t, query, nil)}
		case q.Name == "bare.test.": // no question, as servers that refuse do
			return [][]byte{reply(t, query, nil, func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeRefused, nil })}
		}
		return [][]byte{reply(t, query, nil, func(m *dns.Msg) { m.Rcode = dns.RcodeNameError })}
	})
	for name, c := range map[string]struct {
		query DNSQuery
		want  Reason
	}{
		"any answer":         {DNSQuery{Name: "www.example.test"}, ""},
		"first record":       {DNSQuery{Name: "www.example.test.", Type: "A", Answer: "10.0.0.1"}, ""},
		"second record":      {DNSQuery{Name: "WWW.example.test", Answer: "10.0.0.2"}, ""},
		"another record":     {DNSQuery{Name: "www.example.test", Answer: "10.0.0.3"}, DNS},
		"MX":                 {DNSQuery{Name: "example.test", Type: "MX", Answer: "10 mail.example.TEST."}, ""},
		"TXT":                {DNSQuery{Name: "example.test", Type: "TXT", Answer: `"v=1; a b"`}, ""},
		"AAAA":               {DNSQuery{Name: "example.test", Type: "AAAA", Answer: "2001:0db8:0::0001"}, ""},
		"TCP":                {DNSQuery{Name: "www.example.test", Answer: "10.0.0.2", TCP: true}, ""},
		"empty":              {DNSQuery{Name: "empty.test"}, ""},
		"empty, wanted":      {DNSQuery{Name: "empty.test", Answer: "10.0.0.1"}, DNS},
		"no such name":       {DNSQuery{Name: "absent.test"}, L7STS},
		"as it should be":    {DNSQuery{Name: "absent.test", RCode: "NXDOMAIN"}, ""},
		"should not be":      {DNSQuery{Name: "empty.test", RCode: "NXDOMAIN"}, L7STS},
		"refused":            {DNSQuery{Name: "bare.test"}, L7STS},
		"refused, as wanted": {DNSQuery{Name: "bare.test", RCode: "REFUSED"}, ""},
		"root":               {DNSQuery{Name: ".", Type: "NS", RCode: "NXDOMAIN"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.query.Check(); err != nil {
				t.Error(err)
			}
			if err := s.probe(c.query, longTimeout); c.want != "" {
				wantReason(t, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("descriptors", func(t *testing.T) {
		manyProbes(t, dnsSpec(DNSQuery{Name: "www.example.test"}).Prober("tcp", s.address))
		manyProbes(t, dnsSpec(DNSQuery{Name: "www.example.test", TCP: true}).Prober("tcp", s.address))
	})
}

// Case O-12 for DNS: wrong answers are passed over or named as what they are.
func TestDNSScripted(t *testing.T) {
	q := DNSQuery{Name: "www.example.test", Answer: "10.0.0.1"}
	records := []string{"www.example.test. 60 IN A 10.0.0.1"}
	otherID := func(m *dns.Msg) { m.Id++ }
	otherName := func(m *dns.Msg) { m.Question[0].Name = "mail.example.test." }
	for name, c := range map[string]struct {
		answer func(query *dns.Msg, right []byte) [][]byte
		udp    Reason // "" = up
		tcp    Reason
		slow   bool // over UDP, where the right answer may still come
	}{
		"no answer":     {func(*dns.Msg, []byte) [][]byte { return nil }, L7TOUT, L7TOUT, true},
		"another id":    {func(q *dns.Msg, _ []byte) [][]byte { return [][]byte{reply(t, q, records, otherID)} }, L7RSP, L7RSP, true},
		"id, then ours": {func(q *dns.Msg, right []byte) [][]byte { return [][]byte{reply(t, q, records, otherID), right} }, "", L7RSP, false},
		"another name":  {func(q *dns.Msg, _ []byte) [][]byte { return [][]byte{reply(t, q, records, otherName)} }, L7RSP, L7RSP, false},
		"another type": {func(q *dns.Msg, _ []byte) [][]byte {
			return [][]byte{reply(t, q, records, func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeMX })}
		}, L7RSP, L7RSP, false},
		"no question": {func(q *dns.Msg, _ []byte) [][]byte {
			return [][]byte{reply(t, q, records, func(m *dns.Msg) { m.Question = nil })}
		}, L7RSP, L7RSP, false},
		"the question back": {func(q *dns.Msg, _ []byte) [][]byte {
			packed, _ := q.Pack()
			return [][]byte{packed}
		}, L7RSP, L7RSP, true},
		"another opcode": {func(q *dns.Msg, _ []byte) [][]byte {
			return [][]byte{reply(t, q, records, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify })}
		}, L7RSP, L7RSP, false},
		"cut off":       {func(_ *dns.Msg, right []byte) [][]byte { return [][]byte{right[:len(right)-3]} }, L7RSP, L7RSP, false},
		"half a header": {func(_ *dns.Msg, right []byte) [][]byte { return [][]byte{right[:6]} }, L7RSP, L7RSP, true},
		"garbage":       {func(*dns.Msg, []byte) [][]byte { return [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n")} }, L7RSP, L7RSP, true},
		"garbage, ours": {func(_ *dns.Msg, right []byte) [][]byte { return [][]byte{[]byte("x"), right} }, "", L7RSP, false},
		"too much header": {func(q *dns.Msg, right []byte) [][]byte {
			return [][]byte{append(right[:4:4], "\xff\xff\xff\xff\xff\xff\xff\xff"...)}
		}, L7RSP, L7RSP, false},
	} {
		for transport, want := range map[string]Reason{"udp": c.udp, "tcp": c.tcp} {
			t.Run(name+" "+transport, func(t *testing.T) {
				t.Parallel()
				s := newDNSServer(t, func(query *dns.Msg, _ bool) [][]byte { return c.answer(query, reply(t, query, records)) })
				q := q
				q.TCP = transport == "tcp"
				timeout := longTimeout
				if want == L7TOUT || c.slow && transport == "udp" {
					timeout = shortTimeout
				}
				begun := time.Now()
				err := s.probe(q, timeout)
				if took := time.Since(begun); took > longTimeout/2 {
					t.Errorf("took %s", took)
				}
				if want != "" {
					wantReason(t, err, want)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestDNSTruncated(t *testing.T) {
	records := []string{"www.example.test. 60 IN A 10.0.0.1"}
	s := newDNSServer(t, func(query *dns.Msg, overTCP bool) [][]byte {
		if overTCP {
			return [][]byte{reply(t, query, records)}
		}
		whole := reply(t, query, records, func(m *dns.Msg) { m.Truncated = true })
		return [][]byte{whole[:len(whole)-2]}
	})
	if err := s.probe(DNSQuery{Name: "www.example.test", Answer: "10.0.0.1"}, longTimeout); err != nil {
		t.Error(err)
	}
	if udp, tcp := s.udp.Load(), s.tcp.Load(); udp != 1 || tcp != 1 {
		t.Errorf("asked %d times over UDP and %d over TCP, want once each", udp, tcp)
	}
}

func TestDNSOverTCPInPieces(t *testing.T) {
	for name, cut := range map[string]bool{"whole": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, "tcp", func(conn net.Conn) {
				query, err := (&dns.Conn{Conn: conn}).ReadMsg()
				if err != nil {
					return
				}
				right := reply(t, query, nil)
				framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(right))), right...)
				if cut {
					framed = framed[:len(framed)-1]
				}
				for _, b := range framed {
					_, _ = conn.Write([]byte{b})
				}
			})
			err := s.probe(dnsSpec(DNSQuery{Name: "example.test", TCP: true}), longTimeout)
			if cut {
				wantReason(t, err, L7RSP)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDNSRefusedAndCancelled(t *testing.T) {
	address, _ := freePort(t)
	for _, tcp := range []bool{false, true} { // over UDP it is ICMP that says so
		wantReason(t, probeOnce(dnsSpec(DNSQuery{Name: "example.test", TCP: tcp}).Prober("tcp", address), longTimeout), L4CON)
	}
	cancelled(t, dnsSpec(DNSQuery{Name: "example.test", TCP: true}))
}

func TestDNSQueryCheck(t *testing.T) {
	for _, q := range []DNSQuery{
		{Name: "a..b"},
		{Name: strings.Repeat("x", 64) + ".test"},
		{Name: "example.test", Type: "NONSENSE"},
		{Name: "example.test", Type: "AXFR"},
		{Name: "example.test", Type: "a"},
		{Name: "example.test", RCode: "BADTIME"},
		{Name: "example.test", Answer: "not an address"},
		{Name: "example.test", Answer: "10.0.0.1\nx. IN A 10.0.0.2"},
		{Name: "example.test", Type: "MX", Answer: "10"},
	} {
		t.Run(fmt.Sprint(q), func(t *testing.T) {
			if q.Check() == nil {
				t.Error("no error")
			}
		})
	}
}
