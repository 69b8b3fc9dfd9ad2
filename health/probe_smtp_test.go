package health

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestSMTPProbe(t *testing.T) {
	t.Parallel()
	const ehlo, ok = ">EHLO [127.0.0.1]\r\n", "<250-mail.example.org\r\n250-SIZE 1000\r\n250 HELP\r\n"
	quit := []string{">QUIT\r\n", "<221 bye\r\n"}
	then := func(lines ...string) []string { return append(lines, quit...) }
	for _, tt := range []struct {
		name  string
		spec  SMTP
		lines []string
		want  Reason
		err   string
	}{
		{name: "a session", lines: then("<220 mail.example.org ESMTP\r\n", ehlo, ok)},
		{name: "late greeting (O-12 d)", lines: then("~300ms", "<220 x\r\n", ehlo, ok)},
		{name: "greeting of lines, in pieces", lines: then("<22", "~20ms", "<0-mail\r\n2", "~20ms", "<20 ready\r\n", ehlo, ok)},
		{name: "bare newlines and codes", lines: then("<220\n", ehlo, "<250\n")},
		{name: "a name", spec: SMTP{Name: "lb.example.org"}, lines: then("<220 x\r\n", ">EHLO lb.example.org\r\n", ok)},
		{name: "without EHLO", lines: then("<220 x\r\n", ehlo, "<502 what?\r\n", ">HELO [127.0.0.1]\r\n", "<250 fine\r\n")},
		{name: "goodbye without an answer", lines: []string{"<220 x\r\n", ehlo, ok, ">QUIT\r\n"}},

		{name: "refuses service", lines: then("<554 no SMTP\x07 here\r\n"), want: L7STS, err: "greets with 554 no SMTP here"},
		{name: "is too busy", lines: []string{"<421 later\r\n"}, want: L7STS, err: "greets with 421 later"},
		{name: "refuses us", lines: then("<220 x\r\n", ehlo, "<550-go\r\n550 away\r\n"), want: L7STS, err: "answers EHLO with 550 go"},
		{name: "refuses HELO too", lines: then("<220 x\r\n", ehlo, "<500 what?\r\n", ">HELO [127.0.0.1]\r\n", "<504 no\r\n"), want: L7STS, err: "answers HELO with 504"},
		{name: "no STARTTLS", spec: SMTP{StartTLS: true}, lines: then("<220 x\r\n", ehlo, ok), want: L7RSP, err: "does not offer STARTTLS"},
		{name: "STARTTLS not now", spec: SMTP{StartTLS: true}, lines: then("<220 x\r\n", ehlo, "<250-x\r\n250 starttls\r\n", ">STARTTLS\r\n", "<454 not now\r\n"), want: L7STS, err: "answers STARTTLS with 454 not now"},
		{name: "speaks on after STARTTLS", spec: SMTP{StartTLS: true}, lines: then("<220 x\r\n", ehlo, "<250-x\r\n250 STARTTLS\r\n", ">STARTTLS\r\n", "<220 go\r\n250 injected\r\n"), want: L7RSP, err: "spoke on in clear"},

		{name: "another protocol", lines: []string{"<SSH-2.0-OpenSSH\r\n"}, want: L7RSP, err: `answered "SSH-2.0-OpenSSH", which is not SMTP`},
		{name: "another code within a reply", lines: []string{"<220-x\r\n250 y\r\n"}, want: L7RSP, err: "which is not SMTP"},
		{name: "closed at once", lines: nil, want: L7RSP, err: "closed before the answer was complete"},
		{name: "closed after the greeting", lines: []string{"<220 x\r\n", ehlo}, want: L7RSP, err: "closed before the answer was complete"},
		{name: "endless line", lines: []string{"<220 " + strings.Repeat("x", 3000)}, want: L7RSP, err: "a line of more than 2048 bytes"},
		{name: "endless reply", lines: []string{"<" + strings.Repeat("220-x\r\n", 20_000)}, want: L7RSP, err: "a reply of more than 65536 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", speak(t, tt.lines...))
			wantOutcome(t, s.probe(Spec{Type: "smtp", SMTP: tt.spec}, longTimeout), tt.want, tt.err)
		})
	}
}

func TestSMTPProbeTimesOut(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"greeting": {"~1s"}, "half a reply": {"<220-x\r\n", "~1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", speak(t, lines...))
			wantReason(t, s.probe(Spec{Type: "smtp"}, shortTimeout), L7TOUT)
		})
	}
}

// startTLS is a mail server that goes on with TLS.
func startTLS(t *testing.T, cfg *tls.Config, inside ...string) func(net.Conn) {
	return func(conn net.Conn) {
		speak(t, "<220 x\r\n", ">EHLO [127.0.0.1]\r\n", "<250-x\r\n250 STARTTLS\r\n", ">STARTTLS\r\n", "<220 go\r\n")(conn)
		overTLS(cfg, speak(t, inside...))(conn)
	}
}

func TestSMTPProbeWithSTARTTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, expires, "127.0.0.1")}}
	s := newScripted(t, "tcp", startTLS(t, cfg, ">EHLO [127.0.0.1]\r\n", "<250 x\r\n", ">QUIT\r\n", "<221 bye\r\n", "."))
	ctx, cancel := contextOf(longTimeout)
	defer cancel()
	spec := Spec{Type: "smtp", SMTP: SMTP{StartTLS: true}, TLS: TLS{CA: ca.file}}
	res := timed(ctx, spec.Prober(s.network, s.address), true)
	if res.err != nil || !res.certExpires.Equal(expires) {
		t.Errorf("%v, certificate expires %v, want %v", res.err, res.certExpires, expires)
	}
	s.flat(t, spec)

	spec.TLS.CA = other.file
	untrusted := newScripted(t, "tcp", startTLS(t, cfg))
	wantOutcome(t, untrusted.probe(spec, longTimeout), L6RSP, "unknown authority")
}

func TestSMTPProbeNamesItself(t *testing.T) {
	for network, want := range map[string]string{"unix": "localhost", "tcp": "[127.0.0.1]"} {
		s := newScripted(t, network, speak(t, "<220 x\r\n", ">EHLO "+want+"\r\n", "<250 x\r\n", ">QUIT\r\n", "<221 x\r\n"))
		if err := s.probe(Spec{Type: "smtp"}, longTimeout); err != nil {
			t.Error(err)
		}
	}
	p := &smtpProber{}
	if got := p.name(addressed{}); got != "[IPv6:2001:db8::1]" {
		t.Error(got)
	}
}

// addressed is a connection from an IPv6 address.
type addressed struct{ net.Conn }

func (addressed) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP("2001:db8::1")} }

func FuzzSMTPReply(f *testing.F) {
	f.Add([]byte("220-a\r\n220 b\r\n"))
	f.Add([]byte("250"))
	f.Add([]byte("299 x\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &mailSession{limited: &io.LimitedReader{R: bytes.NewReader(in), N: maxAnswer}}
		s.r = newReplyReader(s.limited)
		code, lines, err := s.read()
		if err != nil {
			if r := asFailure(err).Reason; r != L7RSP || !s.over {
				t.Errorf("%q: %v, over %v", in, err, s.over)
			}
			return
		}
		if len(lines) == 0 || code < 200 || code > 599 || !bytes.HasPrefix(in, fmt.Append(nil, code)) {
			t.Errorf("%q: %d %q", in, code, lines)
		}
	})
}

func TestSMTPProbeLeavesNothingOpen(t *testing.T) {
	s := newScripted(t, "tcp", speak(t, "<220 x\r\n", ">EHLO [127.0.0.1]\r\n", "<250 x\r\n", ">QUIT\r\n", "<221 bye\r\n", "."))
	s.flat(t, Spec{Type: "smtp"})
}
