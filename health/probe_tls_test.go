package health

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTLSProbe(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	good := ca.issue(t, later, "127.0.0.1", "db.example.org", "localhost")
	expired := ca.issue(t, time.Now().Add(-time.Hour).Truncate(time.Second), "127.0.0.1")
	server := func(cert tls.Certificate, alpn ...string) func(net.Conn) {
		return overTLS(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: alpn}, untilEnd)
	}
	for _, tt := range []struct {
		name    string
		network string
		spec    TLS
		script  func(net.Conn)
		want    Reason
		err     string
		expires time.Time
	}{
		{name: "verified by address", spec: TLS{CA: ca.file}, script: server(good), expires: later},
		{name: "verified by name", spec: TLS{CA: ca.file, ServerName: "db.example.org"}, script: server(good), expires: later},
		{name: "verified at a unix socket", network: "unix", spec: TLS{CA: ca.file}, script: server(good), expires: later},
		{name: "another name", spec: TLS{CA: ca.file, ServerName: "web.example.org"}, script: server(good), want: L6RSP, err: "web.example.org", expires: later},
		{name: "another authority", spec: TLS{CA: other.file}, script: server(good), want: L6RSP, err: "unknown authority", expires: later},
		{name: "the system's authorities", script: server(good), want: L6RSP, err: "authority", expires: later},
		{name: "expired", spec: TLS{CA: ca.file}, script: server(expired), want: L6RSP, err: "expired", expires: expired.Leaf.NotAfter},
		{name: "not verified", spec: TLS{NoVerify: true, CA: "/nonexistent"}, script: server(expired), expires: expired.Leaf.NotAfter},
		{name: "ALPN", spec: TLS{CA: ca.file, ALPN: []string{"h3", "h2"}}, script: server(good, "h2", "http/1.1"), expires: later},
		{name: "ALPN refused", spec: TLS{CA: ca.file, ALPN: []string{"h3"}}, script: server(good, "h2"), want: L6RSP, err: "no application protocol"},
		{name: "ALPN not known", spec: TLS{CA: ca.file, ALPN: []string{"h2"}}, script: server(good), want: L6RSP, err: "speaks none of h2", expires: later},
		{name: "only TLS 1.0", spec: TLS{CA: ca.file}, script: overTLS(&tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS10, MinVersion: tls.VersionTLS10}, untilEnd), want: L6RSP, err: "protocol version"},
		{name: "not TLS", spec: TLS{CA: ca.file}, script: func(conn net.Conn) {
			_, _ = io.WriteString(conn, "220 mail.example.org ESMTP\r\n")
			untilEnd(conn)
		}, want: L6RSP, err: "does not look like a TLS handshake"},
		{name: "closed at once", spec: TLS{CA: ca.file}, script: func(net.Conn) {}, want: L6RSP},
		{name: "closed in the handshake", spec: TLS{CA: ca.file}, script: func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4<<10))
		}, want: L6RSP, err: "closed in the TLS handshake"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			network := "tcp"
			if tt.network != "" {
				network = tt.network
			}
			s := newScripted(t, network, tt.script)
			ctx, cancel := contextOf(longTimeout)
			defer cancel()
			res := timed(ctx, Spec{Type: "tls", TLS: tt.spec}.Prober(s.network, s.address), true)
			wantOutcome(t, res.err, tt.want, tt.err)
			if !res.certExpires.Equal(tt.expires) {
				t.Errorf("the certificate expires %v, want %v", res.certExpires, tt.expires)
			}
		})
	}
}

// The server must see a client that takes its leave: close_notify, the end, and no
// reset, though it has sent tickets that no one asked for.
func TestTLSProbeClosesPolitely(t *testing.T) {
	ca := newAuthority(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(time.Hour), "127.0.0.1")}}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := cfg.Clone()
		cfg.MaxVersion = version
		s := newScripted(t, "tcp", func(conn net.Conn) {
			secure := tls.Server(conn, cfg)
			if _, err := secure.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("inside: %v, want the end", err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("outside: %v, want the end", err)
			}
		})
		s.flat(t, Spec{Type: "tls", TLS: TLS{CA: ca.file}})
	}
}

func TestTLSProbeTimesOut(t *testing.T) {
	t.Parallel()
	s := newScripted(t, "tcp", func(conn net.Conn) { untilEnd(conn) })
	err := s.probe(Spec{Type: "tls", TLS: TLS{NoVerify: true}}, shortTimeout)
	wantOutcome(t, err, L6TOUT, "no TLS handshake within the timeout")
}

// A file of certificates that cannot be used is this host's trouble, and one that
// is replaced is read again.
func TestTLSProbeReadsTheAuthorities(t *testing.T) {
	right, wrong := newAuthority(t), newAuthority(t)
	cert := right.issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	s := newScripted(t, "tcp", overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, untilEnd))
	file := filepath.Join(t.TempDir(), "ca.pem")
	p := Spec{Type: "tls", TLS: TLS{CA: file}}.Prober(s.network, s.address)
	local := func(words string) {
		t.Helper()
		err := probeOnce(p, longTimeout)
		if !errors.Is(err, ErrLocal) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want ErrLocal with %q", err, words)
		}
	}
	local("no such file")
	if err := os.WriteFile(file, []byte("rubbish"), 0o644); err != nil {
		t.Fatal(err)
	}
	local("no certificate in")
	for _, a := range []*testAuthority{wrong, right} {
		pem, err := os.ReadFile(a.file)
		if err != nil {
			t.Fatal(err)
		}
		next := file + ".new"
		pem = append(pem, bytes.Repeat([]byte("\n"), 4096-len(pem))...) // one size and one time for both
		if err := os.WriteFile(next, pem, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(next, time.Time{}, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
		want := L6RSP
		if a == right {
			want = ""
		}
		for range 2 { // read, and remembered
			wantOutcome(t, probeOnce(p, longTimeout), want, "")
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	local("must be a regular file")
}

// The expiry is in the status of a target, and the earliest of a chain counts.
func TestStatusTellsWhenTheCertificateExpires(t *testing.T) {
	ca := newAuthority(t)
	cert := ca.issue(t, ca.cert.NotAfter.Add(time.Hour), "127.0.0.1") // outlives its authority
	s := newScripted(t, "tcp", overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, untilEnd))
	m := NewMonitor(func(string, bool, Status) {}, nil)
	defer m.Close()
	m.Set([]Target{{Key: "k", Network: s.network, Address: s.address, Spec: Spec{
		Type: "tls", TLS: TLS{CA: ca.file}, Interval: 10 * time.Millisecond, Timeout: longTimeout,
	}}})
	eventually(t, func() bool { st, _ := m.Status("k"); return st.Probes > 0 })
	if st, _ := m.Status("k"); !st.CertExpires.Equal(ca.cert.NotAfter) {
		t.Errorf("expires %v, want %v: %+v", st.CertExpires, ca.cert.NotAfter, st)
	}
	// That it cannot be asked any more does not change it, another question does.
	s.stop()
	eventually(t, func() bool { st, _ := m.Status("k"); return st.FailuresBy[L4CON] > 0 })
	if st, _ := m.Status("k"); !st.CertExpires.Equal(ca.cert.NotAfter) {
		t.Errorf("expires %v after a failure", st.CertExpires)
	}
	m.Set([]Target{{Key: "k", Network: s.network, Address: s.address, Spec: Spec{
		Type: "tcp", Interval: 10 * time.Millisecond, Timeout: longTimeout,
	}}})
	eventually(t, func() bool { st, _ := m.Status("k"); return st.CertExpires.IsZero() })
}
