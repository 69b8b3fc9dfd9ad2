package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/internal/config"
)

// listed is a pool whose backends are in a file, with further keys.
func listed(t testing.TB, keys string) config.Pool {
	t.Helper()
	f, err := config.Parse("x.yaml", []byte("services: {}\npools: {pg: {backends_file: /etc/poise/pg.list, "+keys+"}}"))
	if err != nil {
		t.Fatal(err)
	}
	return f.Pools[0]
}

// TestParseBackends reads files of backends in all their forms.
func TestParseBackends(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, keys, in string
		want           string // the backends, or the problems
	}{
		{
			"lines", "max_connections: 7", "\n# all\n10.0.0.1:80\n\t10.0.0.2:80 name=b weight=0 backup # the other\r\n[2001:db8::1]:80 max_connections=1k\nunix:/run/a.sock",
			"10.0.0.1:80 10.0.0.1:80 100 false 7 up\nb 10.0.0.2:80 0 true 7 up\n[2001:db8::1]:80 [2001:db8::1]:80 100 false 1024 up\nunix:/run/a.sock unix:/run/a.sock 100 false 7 up\n",
		},
		{"ipv6 first", "check: {initial: down}", "[::1]:80\n", "[::1]:80 [::1]:80 100 false 0 down\n"},
		{"yaml", "", "# list\n- 10.0.0.1:80\n- {name: b, address: \"10.0.0.2:80\", weight: 5}\n", "10.0.0.1:80 10.0.0.1:80 100 false 0 up\nb 10.0.0.2:80 5 false 0 up\n"},
		{"json", "", `[{"name": "b", "address": "10.0.0.2:80", "backup": true}, "[::1]:80"]`, "b 10.0.0.2:80 100 true 0 up\n[::1]:80 [::1]:80 100 false 0 up\n"},
		{"none", "", "[]\n", ""},
		{"empty", "", "", "/etc/poise/pg.list:1:1: backends: the file lists no backend; write one a line, or [] for none"},
		{"comments", "", "# soon\n\n", "/etc/poise/pg.list:1:1: backends: the file lists no backend; write one a line, or [] for none"},
		{"document", "", "---\n", "/etc/poise/pg.list:1:1: backends: the file lists no backend; write one a line, or [] for none"},
		{"wrong lines", "", "10.0.0.1:80 fast\n10.0.0.2 weight=x\n10.0.0.3:80 weight=1 weight=2 wieght=3\n10.0.0.1:80\n", `/etc/poise/pg.list:1:1: backends: "fast" is no setting; write name=NAME, weight=N, max_connections=N or backup
/etc/poise/pg.list:2:1: backends[1].address: "10.0.0.2" has no port; write "address:port"
/etc/poise/pg.list:2:1: backends[1].weight: "x" is not a whole number; write one from 0 to 65535, digits only
/etc/poise/pg.list:3:1: backends: "weight" is given twice; keep one of them
/etc/poise/pg.list:3:1: backends[2].wieght: no such key; did you mean "weight"?
/etc/poise/pg.list:4:1: backends[3]: backend 10.0.0.1:80 is in this pool already, at /etc/poise/pg.list:1:1; remove one, or give it more weight`},
		{"names", "", "db.internal:80\nsrv:_pg._tcp.example.org\n", `/etc/poise/pg.list:1:1: backends[0]: "db.internal:80" is a name; write the IP address, or move it to the key backends
/etc/poise/pg.list:2:1: backends[1]: "srv:_pg._tcp.example.org" is a name; write the IP address, or move it to the key backends`},
		{"mapping", "", "{a: b}", "/etc/poise/pg.list:1:1: backends: is a mapping, and must be a list: [10.0.0.1:5432]"},
		{"half a list", "", "[10.0.0.1:80,", "/etc/poise/pg.list:1:1: yaml: "},
		{"variable", "", "- ${HOME}\n", "/etc/poise/pg.list:1:3: [0]: environment variable HOME is not set; set it, or write $${...} for the literal text"},
		{"socket and port", "check: {port: 81}", "10.0.0.1:80\nunix:/run/a.sock\n", "/etc/poise/pg.list:2:1: backends[1]: what the pool's check asks cannot be asked of the socket /run/a.sock; move it to a pool of its own"},
		{"socket and client", "source: client", "10.0.0.1:80\nunix:/run/a.sock\n", "/etc/poise/pg.list:2:1: backends[1]: the socket /run/a.sock cannot be in a pool for UDP, with source: client, or with tls that has no server_name; move it to a pool of its own"},
		{"socket and tls", "tls: {verify: true}", "unix:/run/a.sock\n", "/etc/poise/pg.list:1:1: backends[0]: the socket /run/a.sock cannot be in a pool for UDP, with source: client, or with tls that has no server_name; move it to a pool of its own"},
		{"socket and tls with a name", "tls: {server_name: a.internal}", "unix:/run/a.sock\n", "unix:/run/a.sock unix:/run/a.sock 100 false 0 up\n"},
		{"other family", "source: 10.0.0.9", "[::1]:80\n", "/etc/poise/pg.list:1:1: backends[0]: [::1]:80 cannot be reached from source 10.0.0.9; both must be IPv4, or both IPv6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			backends, err := listed(t, tt.keys).ParseBackends([]byte(tt.in))
			var got strings.Builder
			for _, b := range backends {
				fmt.Fprintf(&got, "%s %s %d %t %d %s\n", b.Name, b.Addr, b.Weight, b.Backup, b.MaxConnections, b.Initial)
			}
			if err != nil {
				got.Reset()
				got.WriteString(err.Error())
			}
			if prefix := strings.HasSuffix(tt.want, " "); prefix && strings.HasPrefix(got.String(), tt.want) {
				return
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// FuzzParseBackends: whatever is in the file, there are backends as they are
// promised, or problems; and what is read from lines is as if it came from YAML.
func FuzzParseBackends(f *testing.F) {
	for _, seed := range []string{
		"10.0.0.1:80\n", "10.0.0.2:80 name=b weight=0 backup # x\r\n", "[::1]:80 max_connections=1k", "unix:/a", "- 10.0.0.1:80\n",
		`[{"name": "b", "address": "10.0.0.2:80"}]`, "[]", "---\n", "{", "- ${A}", "a b=c =d", "db.internal:80", "- - -", "[[[[", "x backup=false\x00",
	} {
		f.Add([]byte(seed))
	}
	pool := listed(f, "max_connections: 7")
	f.Fuzz(func(t *testing.T, data []byte) {
		backends, err := pool.ParseBackends(data)
		var problems config.Problems
		if err != nil && (!errors.As(err, &problems) || len(problems) == 0) {
			t.Fatalf("error %v", err)
		}
		for _, p := range problems {
			if s := p.String(); p.Line < 1 || p.Column < 1 || p.Key == "" || p.Text == "" || strings.ContainsAny(s, "\n\x00") {
				t.Fatalf("malformed problem %q", s)
			}
		}
		if err != nil {
			return
		}
		if len(backends) == 0 && !bytes.Contains(data, []byte("[")) {
			t.Fatal("no backends, and nobody said [] ")
		}
		names := map[string]bool{}
		for _, b := range backends {
			if names[b.Name] || !b.Addr.IsValid() || b.Weight < 0 || b.Weight > 65535 || b.MaxConnections < 0 {
				t.Errorf("backend %+v", b)
			}
			names[b.Name] = true
		}
	})
}
