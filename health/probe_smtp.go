package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
)

// SMTP is what an smtp check does with a mail server.
type SMTP struct {
	Name     string // we say we are; "" = our address
	StartTLS bool   // go on with TLS, as Spec.TLS says
}

// smtpProber has the beginning of a session with a mail server: it waits for the
// greeting, for a client must not speak before it (RFC 5321, section 3.1),
// introduces itself, perhaps twice (RFC 3207), and takes its leave.
type smtpProber struct {
	dialer
	spec SMTP
	tls  *shaker
}

var smtpCheck = Check{Word: "smtp", New: newSMTPProber, Fails: asking, TLS: func(s Spec) bool { return s.SMTP.StartTLS }}

func newSMTPProber(s Spec, network, address string) Prober {
	d := s.dialer(network, address)
	return &smtpProber{d, s.SMTP, s.shaker(d)}
}

// Probe connects and holds the session.
func (p *smtpProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	s := newMailSession(conn)
	err = p.talk(ctx, s, conn)
	answered(ctx)
	s.quit(ctx, conn)
	return err
}

// talk is all but the goodbye.
func (p *smtpProber) talk(ctx context.Context, s *mailSession, conn net.Conn) error {
	if _, err := s.reply("the greeting", 220); err != nil {
		return err
	}
	name := p.name(conn)
	extensions, err := s.hello(name)
	if err == nil && p.spec.StartTLS {
		err = p.startTLS(ctx, s, conn, name, extensions)
	}
	return err
}

// name is what we are called, if need be the literal of our address (RFC 5321,
// section 4.1.3).
func (p *smtpProber) name(conn net.Conn) string {
	if p.spec.Name != "" {
		return p.spec.Name
	}
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	switch {
	case !ok:
		return "localhost"
	case at.IP.To4() != nil:
		return "[" + at.IP.String() + "]"
	}
	return "[IPv6:" + at.IP.String() + "]"
}

func (p *smtpProber) startTLS(ctx context.Context, s *mailSession, conn net.Conn, name string, extensions []string) error {
	if !slices.ContainsFunc(extensions, func(e string) bool { return strings.EqualFold(e, "STARTTLS") }) {
		return failf(L7RSP, "does not offer STARTTLS")
	}
	if err := s.command("STARTTLS"); err != nil {
		return err
	}
	if _, err := s.reply("STARTTLS", 220); err != nil {
		return err
	}
	if s.r.Buffered() > 0 { // it would be taken for the beginning of the secure session
		return failf(L7RSP, "spoke on in clear after STARTTLS")
	}
	secure, err := p.tls.shake(ctx, conn, nil)
	if err != nil {
		s.over = true
		return err
	}
	s.secure(secure)
	_, err = s.hello(name)
	return err
}

// mailSession is the client's side of SMTP.
type mailSession struct {
	w       io.Writer
	limited *io.LimitedReader
	r       *bufio.Reader
	over    bool // the connection is of no more use
}

// maxMailLine is well above the 512 bytes of RFC 5321, section 4.5.3.1.5.
const maxMailLine = 2 << 10

func newMailSession(conn net.Conn) *mailSession {
	s := &mailSession{w: conn, limited: &io.LimitedReader{R: conn, N: maxAnswer}}
	s.r = newReplyReader(s.limited)
	return s
}

func newReplyReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, maxMailLine) }

func (s *mailSession) secure(conn *tls.Conn) {
	s.w, s.limited.R = conn, conn
	s.r.Reset(s.limited)
}

func (s *mailSession) command(line string) error {
	if _, err := io.WriteString(s.w, line+"\r\n"); err != nil {
		s.over = true
		return answerFailure(err)
	}
	return nil
}

// hello introduces us and returns the extensions of the server. One that does not
// know EHLO has none (RFC 5321, section 3.2).
func (s *mailSession) hello(name string) (extensions []string, err error) {
	if err := s.command("EHLO " + name); err != nil {
		return nil, err
	}
	code, lines, err := s.read()
	if err != nil {
		return nil, err
	}
	switch code {
	case 250:
		return lines[1:], nil
	case 500, 502:
		if err := s.command("HELO " + name); err != nil {
			return nil, err
		}
		_, err = s.reply("HELO", 250)
		return nil, err
	}
	return nil, wrongReply("EHLO", code, lines)
}

// reply reads one reply to what, which must have the code.
func (s *mailSession) reply(what string, want int) (lines []string, err error) {
	code, lines, err := s.read()
	if err == nil && code != want {
		err = wrongReply(what, code, lines)
	}
	return lines, err
}

func wrongReply(what string, code int, lines []string) *Failure {
	if what == "the greeting" {
		return failf(L7STS, "greets with %d %s", code, oneLine(lines[0]))
	}
	return failf(L7STS, "answers %s with %d %s", what, code, oneLine(lines[0]))
}

// read reads a reply of one or more lines (RFC 5321, section 4.2.1). There is at
// least one.
func (s *mailSession) read() (code int, lines []string, err error) {
	for {
		raw, err := s.r.ReadSlice('\n')
		switch {
		case err == bufio.ErrBufferFull:
			s.over = true
			return 0, nil, failf(L7RSP, "a line of more than %d bytes", maxMailLine)
		case err != nil && s.limited.N <= 0:
			s.over = true
			return 0, nil, failf(L7RSP, "a reply of more than %d bytes", maxAnswer)
		case err != nil:
			s.over = true
			return 0, nil, answerFailure(err)
		}
		line := strings.TrimRight(string(raw), "\r\n")
		n, text, more, ok := parseMailReply(line)
		if !ok || len(lines) > 0 && n != code {
			s.over = true
			return 0, nil, failf(L7RSP, "answered %s, which is not SMTP", excerpt([]byte(line)))
		}
		code, lines = n, append(lines, text)
		if !more {
			return code, lines, nil
		}
	}
}

// parseMailReply reads one line of a reply: a code from 200 to 599, and "-" if there
// are more lines, else a space or nothing.
func parseMailReply(line string) (code int, text string, more, ok bool) {
	if len(line) < 3 || line[0] < '2' || line[0] > '5' {
		return 0, "", false, false
	}
	for _, c := range []byte(line[:3]) {
		if c < '0' || c > '9' {
			return 0, "", false, false
		}
		code = code*10 + int(c-'0')
	}
	if len(line) == 3 {
		return code, "", false, true
	}
	if line[3] != ' ' && line[3] != '-' {
		return 0, "", false, false
	}
	return code, line[4:], line[3] == '-', true
}

// quit takes leave as servers expect it, so that they do not log a lost
// connection. How they answer does not matter.
func (s *mailSession) quit(ctx context.Context, conn net.Conn) {
	if s.over {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()
	stop := setDeadline(ctx, conn)
	defer stop()
	if s.command("QUIT") == nil {
		_, _, _ = s.read()
	}
	if secure, ok := s.w.(*tls.Conn); ok {
		_ = secure.CloseWrite()
	}
}
