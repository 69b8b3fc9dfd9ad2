package tls

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/e2e/rig"
	"github.com/poise-lb/poise/internal/loadgen"
)

// pointTo makes a symbolic link lead to another place, at once.
func pointTo(t testing.TB, link, to string) {
	t.Helper()
	if err := os.Symlink(to, link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
}

// Certificates are renewed under load, in the two ways that are usual. Each new one is
// taken up, and no client notices.
func TestTLSRenewal(t *testing.T) {
	t.Parallel()
	const renewals = 20
	ca := rig.NewAuthority(t)
	files := rig.Leaf{Cert: filepath.Join(ca.Dir, "live.crt"), Key: filepath.Join(ca.Dir, "live.key")}
	mount := filepath.Join(ca.Dir, "mount")
	linked := rig.Leaf{Cert: filepath.Join(mount, "tls.crt"), Key: filepath.Join(mount, "tls.key")}
	// One name is in a file that is replaced, the other in a folder that a link leads to.
	renew := func(link bool) rig.Leaf {
		if !link {
			l := ca.Issue(t, "files.test")
			rig.ReplaceFile(t, files.Key, l.Key)
			rig.ReplaceFile(t, files.Cert, l.Cert)
			return l
		}
		l := ca.IssueFor(t, rig.RSAKey(), func(*x509.Certificate) {}, "link.test")
		dir := l.Cert + ".d"
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		rig.ReplaceFile(t, filepath.Join(dir, "tls.crt"), l.Cert)
		rig.ReplaceFile(t, filepath.Join(dir, "tls.key"), l.Key)
		pointTo(t, mount, dir)
		return l
	}
	renew(false)
	renew(true)
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, fmt.Sprintf("tls: {certificates: [%s, %s]}", files.YAML(), linked.YAML()), "check: {type: none}", rig.Member("db1", db.Addr())))

	clientsOf := func(name string) *rig.Repeated {
		return rig.Repeat(t, 1, 20*time.Millisecond, func() error {
			c, err := rig.DialTLS(t, listen, ca.ClientConfig(name))
			if err == nil {
				_, err = rig.NewClient(c).Ask()
				c.Close()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	ofFiles, ofLink := clientsOf("files.test"), clientsOf("link.test")
	for i := range renewals {
		link, name := i%2 == 1, "files.test"
		if link {
			name = "link.test"
		}
		want := renew(link).Serial()
		rig.Eventually(t, "the new certificate", func() bool {
			got, err := rig.ShownSerial(t, listen, ca.ClientConfig(name))
			if err != nil {
				t.Fatal(err)
			}
			return got == want
		})
	}
	t.Logf("%d handshakes", ofFiles.Stop()+ofLink.Stop())
	m := p.Metrics(t)
	if n := m.Sum("poise_sessions_total", `outcome="tls_failed"`); n != 0 {
		t.Errorf("%v handshakes failed", n)
	}
	if strings.Contains(p.Stderr(), "level=WARN") {
		t.Error("there are warnings")
	}
}

// A certificate without its key never takes the place of one that has it: whether it is
// found by itself, or with a reload.
func TestTLSBrokenRenewal(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	live := rig.Leaf{Cert: filepath.Join(ca.Dir, "live.crt"), Key: filepath.Join(ca.Dir, "live.key")}
	first := ca.Issue(t, "db.test")
	rig.ReplaceFile(t, live.Cert, first.Cert)
	rig.ReplaceFile(t, live.Key, first.Key)
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	p := rig.Start(t, rig.WebConfig(listen, live.ServiceTLS(), "check: {type: none}", rig.Member("db1", db.Addr())))
	expiry := func() float64 {
		return p.Metrics(t)[fmt.Sprintf(`poise_certificate_expiry_timestamp_seconds{certificate=%q,service="web"}`, live.Cert)]
	}
	serves := func(want rig.Leaf) {
		t.Helper()
		if got, err := rig.ShownSerial(t, listen, ca.ClientConfig("db.test")); err != nil || got != want.Serial() {
			t.Errorf("certificate %d is shown, not %d, %v", got, want.Serial(), err)
		}
		if got := expiry(); got != float64(want.Leaf.NotAfter.Unix()) {
			t.Errorf("the metric says %v, not %v", got, want.Leaf.NotAfter.Unix())
		}
	}
	serves(first)

	// The certificate of another key, and that is all.
	later := func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(24 * time.Hour) }
	second := ca.IssueFor(t, rig.RSAKey(), later, "db.test")
	rig.ReplaceFile(t, live.Cert, second.Cert)
	rig.Eventually(t, "a warning", func() bool { return strings.Contains(p.Stderr(), "level=WARN") })
	serves(first)
	rig.Eventually(t, "it in the metric", func() bool { return p.Metrics(t)["poise_certificate_files_broken"] == 1 })
	if w := p.Status(t).Warnings; len(w) != 1 || !strings.Contains(w[0], "service web: tls.certificates[0]") || !strings.Contains(w[0], "does not belong") {
		t.Errorf("the status warns of %q", w)
	}
	if stdout, _, _ := rig.CLI(t, "status", "--socket", p.Socket()); !strings.Contains(stdout, "\nwarning: service web: ") {
		t.Errorf("no warning in\n%s", stdout)
	}

	p.Signal(syscall.SIGHUP)
	rig.Eventually(t, "the reload to be refused", func() bool { return p.Metrics(t)["poise_config_last_reload_success"] == 0 })
	serves(first)
	if res := p.Reload(t, rig.WebConfig(listen, live.ServiceTLS("alpn: [x]"), "check: {type: none}", rig.Member("db1", db.Addr()))); res.OK || !strings.Contains(res.Error, live.Cert) {
		t.Errorf("a reload: %+v", res)
	}
	serves(first)
	// It has been looked at again and again since: every few seconds.
	time.Sleep(6 * time.Second)
	warnings := 0
	for line := range strings.Lines(p.Stderr()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "live.crt") {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings:\n%s", warnings, p.Stderr())
	}
	// Neither does a file that is no certificate, or none at all.
	if err := os.Remove(live.Cert); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	serves(first)
	rig.ReplaceFile(t, live.Cert, first.Key)
	time.Sleep(time.Second)
	serves(first)

	rig.ReplaceFile(t, live.Key, second.Key)
	rig.ReplaceFile(t, live.Cert, second.Cert)
	rig.Eventually(t, "the second certificate", func() bool {
		got, err := rig.ShownSerial(t, listen, ca.ClientConfig("db.test"))
		return err == nil && got == second.Serial()
	})
	rig.Eventually(t, "the metric", func() bool { return expiry() == float64(second.Leaf.NotAfter.Unix()) })
	serves(second)
	p.MustReload(t, rig.WebConfig(listen, live.ServiceTLS(), "check: {type: none}", rig.Member("db1", db.Addr())))
	serves(second)
	if m := p.Metrics(t); m["poise_config_last_reload_success"] != 1 {
		t.Error("the metric says that the reload has failed")
	}
	rig.Eventually(t, "all to be well", func() bool {
		return p.Metrics(t)["poise_certificate_files_broken"] == 0 && len(p.Status(t).Warnings) == 0
	})

	// The answer to a reload has what the log gets.
	if err := os.Chmod(live.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := rig.CLI(t, "reload", "--socket", p.Socket())
	if code != 0 || !strings.HasPrefix(stderr, "warning: services.web.tls.certificates[0].key: ") || !strings.Contains(stderr, "can be read by every user") {
		t.Errorf("reload: exit code %d, %q", code, stderr)
	}
}

// A start with a broken pair fails, and says what is wrong.
func TestTLSBrokenStart(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	one, other := ca.Issue(t, "db.test"), ca.IssueFor(t, rig.RSAKey(), func(*x509.Certificate) {}, "db.test")
	mixed := rig.Leaf{Cert: one.Cert, Key: other.Key}
	p := rig.Launch(t, rig.WebConfig(rig.Addr(t), mixed.ServiceTLS(), "", rig.Member("db1", "127.0.0.1:1")))
	if code := p.Wait(t); code != 1 || !strings.Contains(p.Stderr(), one.Cert) {
		t.Errorf("exit code %d", code)
	}
}

// A SIGHUP takes up at once what has changed, and connections that are open go on.
func TestTLSReloadKeepsConnections(t *testing.T) {
	t.Parallel()
	ca := rig.NewAuthority(t)
	one, two := ca.Issue(t, "db.test"), ca.Issue(t, "db.test")
	db := rig.Backend(t, "db1", loadgen.Behaviour{})
	listen := rig.Addr(t)
	yaml := func(l rig.Leaf) string {
		return rig.WebConfig(listen, l.ServiceTLS(), "check: {type: none}", rig.Member("db1", db.Addr()))
	}
	p := rig.Start(t, yaml(one))
	old := rig.NewClient(rig.MustDialTLS(t, listen, ca.ClientConfig("db.test")))
	old.MustAsk(t)
	// One that is in the middle of its handshake.
	half := rig.Connect(t, listen)
	hello := rig.ClientHello(t, ca.ClientConfig("db.test"))
	if _, err := half.Write(hello[:len(hello)/2]); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the handshake to have begun", func() bool {
		return p.Metrics(t)[`poise_tls_handshakes_active{service="web"}`] == 1
	})
	p.MustReload(t, yaml(two))
	if got, err := rig.ShownSerial(t, listen, ca.ClientConfig("db.test")); err != nil || got != two.Serial() {
		t.Errorf("certificate %d is shown, %v", got, err)
	}
	if _, err := half.Write(hello[len(hello)/2:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(half, b); err != nil || b[0] != 22 {
		t.Errorf("the handshake under way: %q, %v", b, err)
	}
	old.MustAsk(t)
}
