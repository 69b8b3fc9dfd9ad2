package reload

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// answerTime is how long a command may take that meets something else than a file,
// where before it waited for ever.
const answerTime = 10 * time.Second

// Case O-48: what is no regular file, in the place of every file that the
// configuration names. Check, start and reload say so with the key and the file;
// the reload after it works, and the stop.
func TestSomethingElseThanAFile(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), rig.NewAuthority(t)
	pair := a.Issue(t, "a.test")
	pipe, sparse, folder := filepath.Join(dir, "pipe"), filepath.Join(dir, "sparse"), filepath.Join(dir, "folder")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 5<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	listen := rig.Addr(t)
	text := func(service, pool string) string {
		return fmt.Sprintf(`
services: {web: {listen: [%q], pool: web%s}}
pools: {web: {%s}}
`, listen, service, cmp.Or(pool, `backends: ["127.0.0.1:9"]`))
	}
	const backends = `backends: ["127.0.0.1:9"], `
	keys := []struct{ key, service, pool string }{
		{key: "services.web.access.deny_files[0]", service: `, access: {deny_files: [FILE]}`},
		{key: "services.web.access.allow_files[0]", service: `, access: {allow_files: [FILE]}`},
		{key: "services.web.tls.certificates[0].cert", service: `, tls: {certificates: [{cert: FILE, key: KEY}]}`},
		{key: "services.web.tls.certificates[0].key", service: `, tls: {certificates: [{cert: CERT, key: FILE}]}`},
		{key: "services.web.tls.client_ca", service: `, tls: {certificates: [{cert: CERT, key: KEY}], client_ca: FILE}`},
		{key: "services.web.tls.ticket_keys", service: `, tls: {certificates: [{cert: CERT, key: KEY}], ticket_keys: FILE}`},
		{key: "pools.web.tls.ca", pool: backends + `tls: {server_name: a.test, ca: FILE}`},
		{key: "pools.web.tls.cert", pool: backends + `tls: {server_name: a.test, cert: FILE, key: KEY}`},
		{key: "pools.web.tls.key", pool: backends + `tls: {server_name: a.test, cert: CERT, key: FILE}`},
		{key: "pools.web.backends_file", pool: `backends_file: FILE`},
		{key: "pools.web.check.tls.ca", pool: backends + `check: {type: tls, tls: {server_name: a.test, ca: FILE}}`},
		{key: "pools.web.checks[0].tls.ca", pool: backends + `checks: [{type: tls, tls: {server_name: a.test, ca: FILE}}]`},
	}
	p := rig.Start(t, text("", ""))
	for _, k := range keys {
		for _, what := range []string{pipe, "/dev/zero", sparse, folder} {
			replace := strings.NewReplacer("FILE", what, "CERT", pair.Cert, "KEY", pair.Key)
			yaml := text(replace.Replace(k.service), replace.Replace(k.pool))
			path := rig.WriteFile(t, yaml)
			for _, command := range []string{"check", "run"} {
				begin := time.Now()
				_, stderr, code := rig.CLI(t, command, "-c", path)
				if took := time.Since(begin); code != rig.ExitFailure || !strings.Contains(stderr, k.key+": ") || !strings.Contains(stderr, what) || took > answerTime {
					t.Errorf("%s: %s is %s: code %d after %s\n%s", command, k.key, what, code, took, stderr)
				}
			}
			if r := p.Reload(t, yaml); r.OK || !strings.Contains(r.Error, k.key+": ") || !strings.Contains(r.Error, what) {
				t.Errorf("reload: %s is %s: %+v", k.key, what, r)
			}
		}
	}
	for _, what := range []string{pipe, "/dev/zero", sparse, folder} { // which TLS works without
		path := rig.WriteFile(t, text(fmt.Sprintf(", tls: {certificates: [{cert: %s, key: %s, ocsp: %s}]}", pair.Cert, pair.Key, what), ""))
		_, stderr, code := rig.CLI(t, "check", "-c", path)
		if code != 0 || !strings.Contains(stderr, "warning: services.web.tls.certificates[0].ocsp: ") || !strings.Contains(stderr, what) {
			t.Errorf("check: ocsp is %s: code %d\n%s", what, code, stderr)
		}
	}
	p.MustReload(t, text(", retries: 1", ""))
	// The files of the configuration itself.
	confd := filepath.Join(p.Dir, "conf.d")
	if err := os.MkdirAll(confd, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{pipe, "/dev/zero", sparse, folder} {
		link := filepath.Join(confd, "x.yaml")
		if err := os.Symlink(what, link); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := rig.CLI(t, "check", "-c", p.Config()); code == 0 || !strings.Contains(stderr, link) {
			t.Errorf("check: a file of conf.d is %s: code %d\n%s", what, code, stderr)
		}
		if r := p.Reload(t, text("", "")); r.OK || !strings.Contains(r.Error, link) {
			t.Errorf("reload: a file of conf.d is %s: %+v", what, r)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := rig.CLI(t, "check", "-c", what); code == 0 || !strings.Contains(stderr, what) {
			t.Errorf("check of %s: code %d\n%s", what, code, stderr)
		}
	}
	p.MustReload(t, text(", retries: 3", ""))
	begin := time.Now()
	p.Stop(t)
	if took := time.Since(begin); took > answerTime {
		t.Errorf("the stop took %s", took)
	}
}

// Case O-48: the file that keeps what operators say, and the access log.
func TestSomethingElseThanAFileToWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key, yaml string
		commands  []string
	}{
		{"admin.state", `admin: {socket: %[1]s/a.sock, http: "", state: %[2]s}`, []string{"check", "run"}},
		{"log.access", `{admin: {socket: %[1]s/a.sock, http: "", state: ""}, log: {access: %[2]s}, services: {}}`, []string{"run"}}, // a reader may come
	} {
		text := fmt.Sprintf(tt.yaml, dir, pipe)
		if !strings.Contains(text, "services") {
			text += "\nservices: {}\n"
		}
		path := rig.WriteFile(t, text)
		for _, command := range tt.commands {
			begin := time.Now()
			_, stderr, code := rig.CLI(t, command, "-c", path)
			if took := time.Since(begin); code != rig.ExitFailure || !strings.Contains(stderr, tt.key+": ") || !strings.Contains(stderr, pipe) || took > answerTime {
				t.Errorf("%s: %s: code %d after %s\n%s", command, tt.key, code, took, stderr)
			}
		}
	}
}
