package health

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestExpectProbe(t *testing.T) {
	t.Parallel()
	ping := []Step{{Send: "PING\r\n"}, {Expect: Pattern{Text: "+PONG"}}}
	wantText := func(text string) []Step { return []Step{{Expect: Pattern{Text: text}}} }
	wantRegex := func(expr string) []Step { return []Step{{Expect: Pattern{Regex: expr}}} }
	for _, tt := range []struct {
		name   string
		steps  []Step
		script func(net.Conn)
		want   Reason
		err    string
	}{
		{name: "question and answer", steps: ping, script: speak(t, ">PING\r\n", "<+PONG\r\n")},
		{name: "in pieces (O-12 a)", steps: wantText("OK"), script: speak(t, "<O", "~200ms", "<K\n")},
		{name: "several steps", steps: []Step{
			{Expect: Pattern{Text: "ready\n"}},
			{Send: "AUTH x\n"},
			{Expect: Pattern{Regex: `^OK [0-9]+\n`}},
			{Send: "\x00\x01"},
			{Send: "\x02"},
			{Expect: Pattern{Text: "\xff\x00"}},
		}, script: speak(t, "<hello, ", "<ready\n", ">AUTH x\n", "<OK 12\n", ">\x00\x01\x02", "<\xfe\xff\x00")},
		{name: "two answers at once", steps: []Step{{Expect: Pattern{Text: "one"}}, {Expect: Pattern{Text: "two"}}}, script: speak(t, "<onetwo")},
		{name: "goes on after the match", steps: []Step{{Expect: Pattern{Text: "aa"}}, {Expect: Pattern{Text: "aa"}}}, script: speak(t, "<aaa"), want: L7RSP, err: `answered "a" and closed, want "aa"`},
		{name: "the end of the answer", steps: wantRegex(`^OK$`), script: speak(t, "<OK")},
		{name: "ends with something else", steps: wantRegex(`^OK$`), script: speak(t, "<OK\n"), want: L7RSP, err: `answered "OK\n", want /^OK$/`},

		{name: "wrong and closed (O-12 b)", steps: wantText("ALIVE"), script: speak(t, "<DEAD\n"), want: L7RSP, err: `answered "DEAD\n" and closed, want "ALIVE"`},
		{name: "closed without an answer", steps: wantText("ALIVE"), script: speak(t), want: L7RSP, err: `closed without an answer, want "ALIVE"`},
		{name: "impossible, and not closed", steps: wantRegex(`^\+PONG`), script: speak(t, "<-ERR unknown\r\n", "~20s"), want: L7RSP, err: `answered "-ERR unknown\r\n", want /^\+PONG/`},
		{name: "long wrong answer", steps: wantText("ALIVE"), script: speak(t, "<"+strings.Repeat("x\x1b", 1000)), want: L7RSP, err: `x\x1bx\x1b"… and closed`},
		{name: "endless wrong answer", steps: wantText("ALIVE"), script: func(conn net.Conn) {
			for block := strings.Repeat("x", 4<<10); ; {
				if _, err := io.WriteString(conn, block); err != nil {
					return
				}
			}
		}, want: L7RSP, err: "and more, want \"ALIVE\" within 65536 bytes"},
		{name: "reset", steps: ping, script: func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 100))
			_ = conn.(*net.TCPConn).SetLinger(0)
		}, want: L7RSP, err: "reset by peer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", tt.script)
			start := time.Now()
			err := s.probe(Spec{Type: "expect", Expect: tt.steps}, longTimeout)
			wantOutcome(t, err, tt.want, tt.err)
			if took := time.Since(start); took > longTimeout/2 {
				t.Errorf("took %v", took)
			}
		})
	}
}

// What the deadline cuts off is a timeout if nothing has come, or the beginning of
// the right answer, and a wrong answer if something else has.
func TestExpectProbeTimesOut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said, expect string
		want         Reason
		err          string
	}{
		"nothing":       {"", "+PONG", L7TOUT, "no complete answer"},
		"the beginning": {"+PO", "+PONG", L7TOUT, "no complete answer"},
		"another":       {"-ERR unknown\r\n", "+PONG", L7RSP, `answered "-ERR unknown\r\n", want "+PONG"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "tcp", func(conn net.Conn) {
				_, _ = io.WriteString(conn, tt.said)
				untilEnd(conn)
			})
			err := s.probe(Spec{Type: "expect", Expect: []Step{{Expect: Pattern{Text: tt.expect}}}}, shortTimeout)
			wantOutcome(t, err, tt.want, tt.err)
		})
	}
}

// A backend that does not read what it is sent.
func TestExpectProbeCannotSend(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", func(net.Conn) { time.Sleep(2 * shortTimeout) })
	err := s.probe(Spec{Type: "expect", Expect: []Step{{Send: strings.Repeat("x", 16<<20)}}}, shortTimeout)
	wantReason(t, err, L7TOUT)
}

func TestExpectProbeLeavesNothingOpen(t *testing.T) {
	s := newScripted(t, "tcp", speak(t, ">PING\r\n", "<+PONG\r\n", "<and more\r\n", "."))
	s.flat(t, Spec{Type: "expect", Expect: []Step{{Send: "PING\r\n"}, {Expect: Pattern{Text: "+PONG"}}}})
}

// The conversation judges the bytes, not how they were cut, and never hangs or
// blames the time.
func FuzzExpectAnswer(f *testing.F) {
	f.Add([]byte("+PONG\r\n"), uint8(1))
	f.Add([]byte("220 x\r\n250-a\r\n250 b\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, answer []byte, n uint8) {
		steps := []Step{{Expect: Pattern{Regex: `(?m)^[+2]`}}, {Expect: Pattern{Text: "\r\n"}}}
		run := func(n int) error {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() {
				defer theirs.Close()
				for rest := answer; len(rest) > 0; {
					k := min(n, len(rest))
					if _, err := theirs.Write(rest[:k]); err != nil {
						return
					}
					rest = rest[k:]
				}
			}()
			return converse(ours, steps)
		}
		whole, cut := run(len(answer)+1), run(int(n)+1)
		if (whole == nil) != (cut == nil) {
			t.Errorf("%q: %v at once, %v by %d", answer, whole, cut, int(n)+1)
		}
		if cut != nil && asFailure(cut).Reason != L7RSP {
			t.Errorf("%q: %v", answer, cut)
		}
	})
}
