package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/poise-lb/poise/internal/config"
)

const good = `
services: {web: {listen: ["127.0.0.1:7000"], pool: web}}
pools: {web: {backends: [10.0.0.1:80]}}
`

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestLoadUnreadable: what cannot be read is not called invalid, and the error
// names the file and the reason.
func TestLoadUnreadable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		set    func(t *testing.T, dir string)
		file   string // that the error names
		reason error
	}{
		{"no file", func(*testing.T, string) {}, "poise.yaml", syscall.ENOENT},
		{"a folder", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "poise.yaml"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "poise.yaml", syscall.EISDIR},
		{"mode 000", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "poise.yaml"), good, 0)
			notRoot(t)
		}, "poise.yaml", syscall.EACCES},
		{"mode 000 in conf.d", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "poise.yaml"), good, 0o644)
			write(t, filepath.Join(dir, "conf.d", "a.yaml"), "log: {}", 0)
			notRoot(t)
		}, "conf.d/a.yaml", syscall.EACCES},
		{"dangling link in conf.d", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "poise.yaml"), good, 0o644)
			if err := os.MkdirAll(filepath.Join(dir, "conf.d"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/nowhere.yaml", filepath.Join(dir, "conf.d", "a.yaml")); err != nil {
				t.Fatal(err)
			}
		}, "conf.d/a.yaml", syscall.ENOENT},
		{"conf.d is a file", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "poise.yaml"), good, 0o644)
			write(t, filepath.Join(dir, "conf.d"), "", 0o644)
		}, "conf.d", syscall.ENOTDIR},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "poise-config-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			tt.set(t, dir)
			f, err := config.Load(filepath.Join(dir, "poise.yaml"))
			if f != nil || err == nil {
				t.Fatalf("loaded %v with error %v", f, err)
			}
			var problems config.Problems
			if errors.As(err, &problems) {
				t.Errorf("unreadable was reported as invalid: %v", err)
			}
			want := fmt.Sprintf("cannot read %s: %s", filepath.Join(dir, tt.file), tt.reason)
			if !errors.Is(err, tt.reason) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// notRoot gives up, for the rest of the test and its thread alone, root's right
// to read any file.
func notRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
	})
}

func TestLoadTooLarge(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("big.yaml", make([]byte, 4<<20+1))
	if want := "big.yaml:1:1: yaml: the file is larger than 4 MiB; is it the right one?"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestExpand holds the documented form of variables against O-39's secrets.
func TestExpand(t *testing.T) {
	t.Setenv("SET", "from the environment")
	t.Setenv("EMPTY", "")
	t.Setenv("DOLLAR", "a$b${SET}$$")
	t.Setenv("STRUCTURE", "x\"\n      fall: 9\n      http: {path: /evil}")
	for in, want := range map[string]string{
		"pa$$w0rd$x":          "pa$w0rd$x",
		"${SET}":              "from the environment",
		"<${SET}|${SET}>":     "<from the environment|from the environment>",
		"$SET":                "$SET",
		"$${SET}":             "${SET}",
		"$$$${SET}":           "$${SET}",
		"$$${SET}":            "$from the environment",
		"${SET":               "${SET",
		"${}":                 "${}",
		"${1}":                "${1}",
		"${SET:-x}":           "${SET:-x}",
		"a$":                  "a$",
		"$":                   "$",
		"<${EMPTY}>":          "<>",
		"${DOLLAR}":           "a$b${SET}$$",
		"${STRUCTURE}":        "x\"\n      fall: 9\n      http: {path: /evil}",
		"# no comment ${SET}": "# no comment from the environment",
	} {
		for _, q := range []string{"'" + in + "'", `"` + in + `"`} {
			f, err := config.Parse("x.yaml", []byte(strings.Replace(good, "backends:", "check: {type: http, http: {expect_body: "+q+"}}, backends:", 1)))
			if err != nil {
				t.Errorf("%s: %v", q, err)
				continue
			}
			if c := f.Pools[0].Check; c.HTTP.ExpectBody != want || c.Fall != 3 || c.HTTP.Path != "/health" {
				t.Errorf("%s: got %q, want %q (%+v)", q, c.HTTP.ExpectBody, want, c)
			}
		}
	}
}

// TestExpandEverywhere: a variable may stand for any single value, and for
// nothing else.
func TestExpandEverywhere(t *testing.T) {
	t.Setenv("PORT", "7001")
	t.Setenv("N", "7")
	t.Setenv("T", "7s")
	t.Setenv("YES", "true")
	t.Setenv("LIST", "[10.0.0.1:80, 10.0.0.2:80]")
	f, err := config.Parse("x.yaml", []byte(`
services:
  web:
    listen: ["127.0.0.1:${PORT}"]
    pool: web
    freebind: ${YES}
    retries: "${N}"
    max_connections: ${N}k
    timeouts:
      connect: ${T}
pools: {web: {backends: [10.0.0.1:80]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Services[0].TCP; s.Listen[0].Addr.Port() != 7001 || !s.Freebind || s.Retries != 7 || s.MaxConnections != 7<<10 || s.Connect.Seconds() != 7 {
		t.Errorf("got %+v", s)
	}
	_, err = config.Parse("x.yaml", []byte("services: {}\npools: {web: {backends: '${LIST}'}, '${N}': {backends: [10.0.0.1:80]}}\n"))
	want := `x.yaml:2:25: pools.web.backends: is text in quotes, and must be a list: [10.0.0.1:5432]
x.yaml:2:37: pools."${N}": "${N}" is no name; use a-z, 0-9, _ and -, starting with a letter or digit`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestProblemsInFileOrder: the main file first, then conf.d by name.
func TestProblemsInFileOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "z.yaml"), "services: {}\nlog: {level: x, zz: y}\nbogus: 1\n", 0o644)
	write(t, filepath.Join(dir, "conf.d", "b.yaml"), "runtime: {workers: b}\n", 0o644)
	write(t, filepath.Join(dir, "conf.d", "a.yaml"), "runtime: {drain: a}\n", 0o644)
	_, err := config.Load(filepath.Join(dir, "z.yaml"))
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s:%d %s", filepath.Base(p.File), p.Line, p.Key))
	}
	want := "z.yaml:2 log.level, z.yaml:2 log.zz, z.yaml:3 bogus, a.yaml:1 runtime.drain, b.yaml:1 runtime.workers"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}
