package admit

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/poise-lb/poise/l4"
)

func file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	deny := file(t, "deny", "\xef\xbb\xbf# bad people\n\n10.0.0.0/24\r\n  10.0.1.5   # just one\n2001:db8::/32#x\n::ffff:10.0.2.0/120\n::ffff:10.0.3.1")
	allow := file(t, "allow", "10.0.0.0/8\n")
	p := policy(t, Spec{
		Deny: prefixes("10.0.9.0/24"), DenyFiles: []string{deny, file(t, "empty", "")},
		AllowFiles: []string{allow},
	}, nil)
	for a, want := range map[string]l4.Outcome{
		"10.0.0.1": l4.RefusedACL, "10.0.1.5": l4.RefusedACL, "10.0.1.6": l4.OK, "10.0.2.9": l4.RefusedACL,
		"10.0.3.1": l4.RefusedACL, "10.0.3.2": l4.OK, "10.0.9.1": l4.RefusedACL, "11.0.0.1": l4.RefusedACL, "2001:db8::1": l4.RefusedACL,
	} {
		if o := p.Admit(addr(a)); o != want {
			t.Errorf("%s: %v, want %v", a, o, want)
		}
	}

	// A reload reads them again.
	if err := os.WriteFile(deny, []byte("10.0.1.6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = policy(t, Spec{DenyFiles: []string{deny}}, p)
	if o := p.Admit(addr("10.0.1.6")); o != l4.RefusedACL {
		t.Errorf("after the file has changed: %v, want %v", o, l4.RefusedACL)
	}
	if o := p.Admit(addr("10.0.0.1")); o != l4.OK {
		t.Errorf("no longer in the file: %v, want %v", o, l4.OK)
	}
}

// A list of those who may come in does not turn into one that lets everybody in
// because somebody has emptied its file.
func TestEmptyAllowFile(t *testing.T) {
	p := policy(t, Spec{AllowFiles: []string{file(t, "allow", "# nobody yet\n")}}, nil)
	if o := p.Admit(addr("10.0.0.1")); o != l4.RefusedACL {
		t.Errorf("%v, want %v", o, l4.RefusedACL)
	}
	if got := p.Prefixes(); got.AllowAll || len(got.Allow) != 0 {
		t.Errorf("%+v, want an allow list with nobody on it", got)
	}
}

// One error has all that is wrong, in all files.
func TestFileErrors(t *testing.T) {
	one := file(t, "one", "10.0.0.0/24\n10.0.0.300\n\n10.0.0.1/8 # hm\n")
	two := file(t, "two", "fe80::1%eth0\n10.0.0.0/33\n10.0.0.0/24 10.0.1.0/24\n<html>"+strings.Repeat("x", 100))
	gone := filepath.Join(t.TempDir(), "gone")
	_, err := New(Spec{DenyFiles: []string{one, gone}, AllowFiles: []string{two}}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	neither := " is neither an address nor a prefix, such as 192.0.2.0/24 or 2001:db8::/32"
	want := []string{
		"access.deny_files[0]: " + one + `:2: "10.0.0.300"` + neither,
		"access.deny_files[0]: " + one + `:4: "10.0.0.1/8" has bits beyond its length; want 10.0.0.0/8, or the address 10.0.0.1 alone`,
		"access.deny_files[1]: open " + gone + ": no such file or directory",
		"access.allow_files[0]: " + two + `:1: "fe80::1%eth0"` + neither,
		"access.allow_files[0]: " + two + `:2: "10.0.0.0/33"` + neither,
		"access.allow_files[0]: " + two + `:3: "10.0.0.0/24 10.0.1.0/24"` + neither,
		"access.allow_files[0]: " + two + `:4: "<html>` + strings.Repeat("x", 54) + `..."` + neither,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}

	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, "10.0.0.%d\nx\n", i)
	}
	_, err = New(Spec{DenyFiles: []string{file(t, "many", many.String())}}, nil)
	got := strings.Split(err.Error(), "\n")
	if len(got) != 11 || !strings.HasSuffix(got[10], ": 40 more bad lines") {
		t.Errorf("got\n%s\nwant ten lines, and how many more there are", err)
	}
}

// Every line is a prefix to compare clients with, or is reported; what is read
// reads the same again; and no line is taken for another.
func FuzzParseList(f *testing.F) {
	f.Add("10.0.0.0/8\n# all\n2001:db8::1 # one\n")
	f.Add("::ffff:10.0.0.0/104\r\n::ffff:0:0/95\n::/0\n0.0.0.0/0")
	f.Add("\xef\xbb\xbf1.2.3.4\n\xef\xbb\xbf1.2.3.5")
	f.Add("10.0.0.1/8\nfe80::1%eth0\n1.2.3\n1.2.3.4/033\n/\n#\n\x00")
	f.Fuzz(func(t *testing.T, data string) {
		var ps []netip.Prefix
		add := func(p netip.Prefix) { ps = append(ps, p) }
		err := parseList("name", []byte(data), add)
		for _, p := range ps {
			if !p.IsValid() || p != p.Masked() || p.Addr().Zone() != "" || (p.Addr().Is4In6() && p.Bits() >= 96) {
				t.Errorf("%v is no prefix to compare clients with", p)
			}
		}
		lines := 0 // with something on them
		for line := range strings.SplitSeq(strings.TrimPrefix(data, "\xef\xbb\xbf"), "\n") {
			if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
				lines++
			}
		}
		bad := 0
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				bad++
				if more, ok := strings.CutPrefix(line, "name: "); ok {
					var n int
					if _, err := fmt.Sscanf(more, "%d more bad lines", &n); err != nil {
						t.Errorf("no number in %q", line)
					}
					bad += n - 1
				}
			}
		}
		if len(ps)+bad != lines {
			t.Errorf("%d prefixes and %d errors of %d lines", len(ps), bad, lines)
		}

		first := ps
		var again strings.Builder
		for _, p := range first {
			fmt.Fprintln(&again, p)
		}
		ps = nil
		if err := parseList("name", []byte(again.String()), add); err != nil || !slices.Equal(ps, first) {
			t.Errorf("read again: %v, %v; want %v", ps, err, first)
		}
	})
}
