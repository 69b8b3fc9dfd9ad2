package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// What is wrong with the files that a configuration names is said one a line, each
// with its key, by check and by run.
func TestFilesAreCheckedOneALine(t *testing.T) {
	dir, a := t.TempDir(), rig.NewAuthority(t)
	good, other := a.Issue(t, "a.test"), a.IssueFor(t, rig.RSAKey(), func(*x509.Certificate) {}, "b.test")
	list := filepath.Join(dir, "list")
	if err := os.WriteFile(list, []byte("10.0.0.0/8\nnobody\n10.0.0.1/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := rig.WriteFile(t, fmt.Sprintf(`
admin: {socket: %[1]s/admin.sock, http: "", state: ""}
services:
  mqtt:
    listen: ["127.0.0.1:1"]
    pool: web
    tls:
      certificates:
        - {cert: %[2]s, key: %[3]s}
        - {cert: %[1]s/no.crt, key: %[3]s}
        - {cert: %[5]s, key: %[1]s/no.key}
      client_ca: %[4]s
  postgres:
    listen: ["127.0.0.1:2"]
    pool: web
    access: {deny: [10.9.0.0/16], deny_files: [%[4]s, %[1]s/no.list], allow_files: [%[4]s]}
pools:
  web:
    backends: ["127.0.0.1:9"]
    tls: {server_name: a.test, cert: %[2]s, key: %[1]s/no.key, ca: %[1]s/no.ca}
`, dir, good.Cert, other.Key, list, other.Cert))
	const neither = `"nobody" is neither an address nor a prefix, such as 192.0.2.0/24 or 2001:db8::/32`
	const beyond = `"10.0.0.1/8" has bits beyond its length; want 10.0.0.0/8, or the address 10.0.0.1 alone`
	want := strings.NewReplacer("DIR", dir, "CRT", good.Cert, "KEY", other.Key, "NEITHER", neither, "BEYOND", beyond).Replace(`services.mqtt.tls.certificates[0].key: key KEY does not belong to certificate CRT
services.mqtt.tls.certificates[1].cert: certificate DIR/no.crt: no such file or directory
services.mqtt.tls.certificates[2].key: key DIR/no.key: no such file or directory
services.mqtt.tls.client_ca: file DIR/list holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----
services.postgres.access.deny_files[0]: DIR/list:2: NEITHER
services.postgres.access.deny_files[0]: DIR/list:3: BEYOND
services.postgres.access.deny_files[1]: open DIR/no.list: no such file or directory
services.postgres.access.allow_files[0]: DIR/list:2: NEITHER
services.postgres.access.allow_files[0]: DIR/list:3: BEYOND
pools.web.tls.ca: file DIR/no.ca: no such file or directory
pools.web.tls.key: key DIR/no.key: no such file or directory
`)
	for _, command := range []string{"check", "run"} {
		if stdout, stderr, code := rig.CLI(t, command, "-c", path); code != exitFailure || stdout != "" || stderr != want {
			t.Errorf("%s: exit code %d, %q\n%s\nwant\n%s", command, code, stdout, stderr, want)
		}
	}
}

// What a start would warn of is no reason to refuse a configuration, and is said.
func TestCheckWarns(t *testing.T) {
	a := rig.NewAuthority(t)
	ending := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) }
	expired := func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Unix(1, 0), time.Unix(2, 0) }
	one, two, three := a.Issue(t, "a.test"), a.IssueFor(t, rig.ECDSAKey(), ending, "b.test"), a.IssueFor(t, rig.ECDSAKey(), expired, "c.test")
	if err := os.Chmod(one.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	path := rig.WriteFile(t, fmt.Sprintf(`
services:
  mqtt: {listen: [":8883"], pool: web, tls: {certificates: [%s, %s]}}
pools:
  web: {backends: ["127.0.0.1:9"], tls: {verify: false, cert: %s, key: %s}}
`, one.YAML(), two.YAML(), three.Cert, three.Key))
	stdout, stderr, code := rig.CLI(t, "check", "-c", path)
	if code != 0 || stdout != path+" is valid: 1 service, 1 pool\n" {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	lines := strings.Split(stderr, "\n")
	want := []string{
		"warning: services.mqtt.tls.certificates[0].key: " + one.Key + " can be read by every user",
		"warning: services.mqtt.tls.certificates[1].cert: certificate " + two.Cert + " expires on ",
		"warning: pools.web.tls.cert: certificate " + three.Cert + " has expired on ",
		"",
	}
	for i, w := range want {
		if len(lines) != len(want) || !strings.HasPrefix(lines[i], w) {
			t.Fatalf("got\n%s\nwant lines that begin with\n%s", stderr, strings.Join(want, "\n"))
		}
	}
}

func TestHelpNamesWhatIsBalanced(t *testing.T) {
	stdout, _, code := rig.CLI(t, "--help")
	if first, _, _ := strings.Cut(stdout, "\n"); code != 0 || !strings.Contains(first, "TCP") || !strings.Contains(first, "UDP") {
		t.Errorf("exit code %d, %q", code, first)
	}
}
