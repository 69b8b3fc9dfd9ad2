package resolve

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// script says what a server does with a query: it answers by the message
// returned, or with nil not at all.
type script func(network string, q *dns.Msg) *dns.Msg

// server is a scripted DNS server on loopback, UDP and TCP on one port.
type server struct {
	addr     netip.AddrPort
	udp, tcp *dns.Server

	mu     sync.Mutex // guards the following
	script script
	raw    dns.HandlerFunc // instead of script, over UDP
	asked  []question
}

// question is what a server was asked.
type question struct {
	network, name string
	qtype         uint16
	edns          bool
	port          uint16 // of the client
}

// newServer starts a server on a free port, or on the one given.
func newServer(t *testing.T, addr string, does script) *server {
	t.Helper()
	s := &server{script: does}
	// Until a port is found that is free for both.
	for try := 0; ; try++ {
		pc, err := net.ListenPacket("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", pc.LocalAddr().String())
		if err != nil {
			pc.Close()
			if try < 20 {
				continue
			}
			t.Fatal(err)
		}
		s.addr = netip.MustParseAddrPort(pc.LocalAddr().String())
		s.udp = &dns.Server{PacketConn: pc, Handler: s.handler("udp")}
		s.tcp = &dns.Server{Listener: l, Handler: s.handler("tcp")}
		break
	}
	var running sync.WaitGroup
	for _, one := range []*dns.Server{s.udp, s.tcp} {
		started := make(chan struct{})
		one.NotifyStartedFunc = func() { close(started) }
		running.Go(func() { _ = one.ActivateAndServe() })
		<-started
	}
	t.Cleanup(func() { s.stop(); running.Wait() })
	return s
}

func (s *server) stop() {
	_ = s.udp.Shutdown()
	_ = s.tcp.Shutdown()
}

func (s *server) handler(network string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		s.mu.Lock()
		does, raw := s.script, s.raw
		client := netip.MustParseAddrPort(w.RemoteAddr().String())
		s.asked = append(s.asked, question{network, q.Question[0].Name, q.Question[0].Qtype, q.IsEdns0() != nil, client.Port()})
		s.mu.Unlock()
		if raw != nil && network == "udp" {
			raw(w, q)
		} else if m := does(network, q); m != nil {
			_ = w.WriteMsg(m)
		}
	}
}

// does changes the script.
func (s *server) does(next script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = next
}

// questions returns what was asked so far.
func (s *server) questions() []question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]question(nil), s.asked...)
}

// says answers with those of the records, in zone file form, that answer the
// question, and all CNAME records; with no record for an existing name it is an
// empty answer, for any other NXDOMAIN.
func says(records ...string) script {
	return func(_ string, q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true
		known := false
		for _, text := range records {
			rr, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			h := rr.Header()
			known = known || h.Name == q.Question[0].Name
			if h.Rrtype == dns.TypeCNAME || h.Rrtype == q.Question[0].Qtype && (h.Name == q.Question[0].Name || len(m.Answer) > 0) {
				m.Answer = append(m.Answer, rr)
			}
		}
		if !known {
			m.Rcode = dns.RcodeNameError
		}
		return m
	}
}

// fails answers with a response code.
func fails(rcode int) script {
	return func(_ string, q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, rcode) }
}

// empty says that the name exists without such records.
func empty(_ string, q *dns.Msg) *dns.Msg { return new(dns.Msg).SetReply(q) }

// silent does not answer.
func silent(string, *dns.Msg) *dns.Msg { return nil }
