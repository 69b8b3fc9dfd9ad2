package tcp_test

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/poise-lb/poise/l4"
)

// Another TLS than Go's: it exchanges bytes, updates its keys, and does not get to
// begin anew, which TLS 1.2 would allow.
func TestOpenSSL(t *testing.T) {
	path, err := exec.LookPath("openssl")
	if err != nil {
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for what, c := range map[string]struct {
		version, command, told string
		want                   l4.Outcome // after the command
	}{
		"update of both keys": {"-tls1_3", "K\n", "KEYUPDATE", l4.OK},
		"update of one key":   {"-tls1_3", "k\n", "KEYUPDATE", l4.OK},
		"renegotiation":       {"-tls1_2", "R\n", "RENEGOTIATING", l4.ClientReset},
	} {
		t.Run(what, func(t *testing.T) {
			m := mode{front: true}
			p := m.through(t, func(e end) { io.Copy(e, e) })
			cmd := exec.Command(path, "s_client", "-connect", p.addr, "-servername", "a.test", c.version)
			in := must(cmd.StdinPipe())
			out := must(cmd.StdoutPipe())
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			exchange := func(line string) bool {
				io.WriteString(in, line)
				return waitFor(out, line)
			}
			if !exchange("first line\n") {
				t.Error("nothing comes back")
			}
			for range 5 {
				io.WriteString(in, c.command) // by itself: what comes with it is not sent
				if !waitFor(out, c.told) {
					t.Fatal("openssl does not know the command")
				}
				if back := exchange("another line\n"); back != (c.want == l4.OK) {
					t.Errorf("after it comes something back: %v", back)
				}
				if c.want != l4.OK {
					break
				}
			}
			in.Close()
			cmd.Wait()
			p.outcome(c.want)
		})
	}
}

// waitFor reads until it has seen line, or the end.
func waitFor(r io.Reader, line string) bool {
	var seen []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			return false
		}
		if seen = append(seen, b[0]); len(seen) > len(line) {
			seen = seen[1:]
		}
		if string(seen) == line {
			return true
		}
	}
}
