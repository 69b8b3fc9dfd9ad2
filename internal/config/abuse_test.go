package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestBillionLaughs: aliases count as if they were written out.
func TestBillionLaughs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("services: {}\npools:\n  a0: &a0 {backends: [10.0.0.1:80]}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	_, err := Parse("x.yaml", []byte(b.String()))
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), "more than 500000 values") {
		t.Errorf("got %v", err)
	}
}

// TestDeepNesting repeats every short piece of YAML syntax, with so little stack
// that recursion by the piece would end the process.
func TestDeepNesting(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(4 << 20))
	pieces := []string{
		"[", "]", "{", "}", "- ", "-", "? ", "?", ": ", ":", "a: ", "a:", "{a: ", "[a: ", "[a, ", "{a, ", "&a ", "&a\n", "*a ", "*a\n", "!a ", "!a\n",
		"!!map ", "- - ", "-\n", "?\n", ":\n", "a:\n", "a: b\n", "|\n", ">\n", "- |\n", "'", "\"", "\\", "# a\n", "#", "---\n", "...\n", "%a\n", "<<: ", "<<: *a\n",
		"\n", " ", "  \n", ",", "${a}", "$$", "\"a\" ", "'a' ", "\"\\\n", "a\n ", "&a [*a, ", "{? ", "[? ", "? - ", "- ? ", "- a: ", "é", "~ ", "null: ", "\r\n", "a\r\n",
	}
	const size = 8_000
	t.Run("pieces", func(t *testing.T) { // waits for all of them, and the stack is small until then
		for _, p := range pieces {
			t.Run(p, func(t *testing.T) {
				t.Parallel()
				for _, whole := range []string{
					strings.Repeat(p, size/len(p)),
					"a: [" + strings.Repeat(p, size/len(p)),
				} {
					if f, err := Parse("x.yaml", []byte(whole)); f != nil || err == nil {
						t.Errorf("%q repeated is accepted", p)
					}
				}
			})
		}
	})
	var stairs strings.Builder
	for i := range 400 {
		fmt.Fprintf(&stairs, "%sa:\n", strings.Repeat(" ", i))
	}
	if _, err := Parse("x.yaml", []byte(stairs.String())); err == nil || !strings.Contains(err.Error(), "nested too deeply") {
		t.Errorf("400 levels of indentation: %v", err)
	}
}

func TestTooManyKeys(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", []byte(strings.Repeat("a: b\n", maxKeys+1)))
	if want := "x.yaml:100001:2: yaml: more than 100000 keys in one file; spread them over conf.d"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", []byte(strings.Repeat("? a\n: b\n", maxQuestions+1)))
	if want := `x.yaml:2001:1: yaml: more than 1000 keys in the form "? key"; write key: value`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestManyBackends: a large installation is no abuse.
func TestManyBackends(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("services: {}\npools:\n")
	for p := range 100 {
		fmt.Fprintf(&b, "  p%d:\n    backends:\n", p)
		for i := range 100 {
			fmt.Fprintf(&b, "      - {name: b%d, address: \"10.%d.%d.1:80\", weight: 10}\n", i, p, i)
		}
	}
	f, err := Parse("x.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Pools) != 100 || len(f.Pools[99].Balance.Backends) != 100 {
		t.Error("backends were lost")
	}
}

// FuzzParse: whatever is in the file, there is either a configuration that keeps
// its promises or a list of problems with a place each.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.yaml", "testdata/*/*/*.yaml", "../../configs/*.yaml", "../../configs/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("f.yaml", data)
		var problems Problems
		switch {
		case err == nil:
			checkPromises(t, file)
		case file != nil || !errors.As(err, &problems) || len(problems) == 0:
			t.Fatalf("file %v, error %v", file, err)
		}
		for _, p := range problems {
			s := p.String()
			if p.File != "f.yaml" || p.Line < 1 || p.Column < 1 || p.Key == "" || p.Text == "" || strings.ContainsAny(s, "\n\x00") {
				t.Fatalf("malformed problem %q", s)
			}
		}
	})
}

// checkPromises checks what the comments of File and the specs say.
func checkPromises(t *testing.T, f *File) {
	pools := map[string]bool{}
	for _, p := range f.Pools {
		pools[p.Balance.Name] = true
		if isName(p.Balance.Name) != "" || len(p.Balance.Backends)+len(p.Discovery.Names) == 0 && p.Discovery.File == "" {
			t.Errorf("pool %+v", p)
		}
		names := map[string]bool{}
		for _, b := range p.Balance.Backends {
			if names[b.Name] || !b.Addr.IsValid() || b.MaxConnections < 0 || b.Weight < 0 || b.Weight > 65535 {
				t.Errorf("backend %+v", b)
			}
			names[b.Name] = true
		}
		if c := p.Check; c.Interval <= 0 || c.Timeout <= 0 || c.FastInterval > c.Interval || c.Rise < 1 || c.Fall < 1 {
			t.Errorf("check %+v", c)
		}
	}
	listens := map[string]bool{}
	for _, s := range f.Services {
		checkService(t, s)
		for _, name := range s.Pools() {
			if !pools[name] {
				t.Errorf("service %s: no pool %q", s.Name, name)
			}
		}
		for _, l := range s.Listen() {
			if key := s.Protocol().String() + l.String(); listens[key] || l.Addr.Port() == 0 {
				t.Errorf("listener %s twice, or without a port", key)
			} else {
				listens[key] = true
			}
		}
	}
}

// checkService checks what the comments of Service and the specs in it say.
func checkService(t *testing.T, s Service) {
	if isName(s.Name) != "" || (s.Pool == "") == (s.SNI == nil) || len(s.Listen()) == 0 || s.TLS != nil && s.SNI != nil {
		t.Errorf("service %+v", s)
	}
	if a := s.Admit; a.PerSource < 0 || a.Rate < 0 || a.SourceRate < 0 || a.Mask4 < 1 || a.Mask4 > 32 || a.Mask6 < 1 || a.Mask6 > 128 {
		t.Errorf("admission %+v", a)
	}
	prefixes := slices.Concat(s.Admit.Allow, s.Admit.Deny)
	if s.TCP != nil {
		prefixes = append(prefixes, s.TCP.Proxy.Trusted...)
	}
	for _, p := range prefixes {
		if p != p.Masked() || !p.IsValid() || p.Addr().Is4In6() {
			t.Errorf("prefix %s", p)
		}
	}
	switch c, u := s.TCP, s.UDP; {
	case (c == nil) == (u == nil):
		t.Errorf("not one protocol %+v", s)
	case u != nil:
		if u.Name != s.Name || u.Idle <= 0 || u.Replies < 0 || u.MaxSessions < 0 || s.TLS != nil || s.SNI != nil {
			t.Errorf("udp %+v", s)
		}
	case c.Name != s.Name || c.FirstBytes <= 0 || c.MaxHandshakes < 1 || (c.Proxy.Accept != 0) != (len(c.Proxy.Trusted) > 0):
		t.Errorf("tcp %+v", s)
	case c.Connect <= 0 || c.ConnectTotal < c.Connect || c.Idle < 0 || c.HalfClose <= 0:
		t.Errorf("timeouts %+v", c)
	}
	if s.TLS != nil && (len(s.TLS.Certificates) == 0 || s.TLS.MinVersion < tls.VersionTLS12) {
		t.Errorf("tls %+v", s.TLS)
	}
	if s.SNI == nil {
		return
	}
	for i, r := range s.SNI.Rules {
		if r.Pattern != strings.ToLower(r.Pattern) || !isHost(strings.TrimPrefix(r.Pattern, "*.")) || r.Pool == "" ||
			i > 0 && r.Pattern < s.SNI.Rules[i-1].Pattern || i > 0 && r.Pattern == s.SNI.Rules[i-1].Pattern && len(s.SNI.Rules[i-1].ALPN) == 0 {
			t.Errorf("rule %+v after %+v", r, s.SNI.Rules[:i])
		}
	}
}
