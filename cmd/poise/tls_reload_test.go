package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// replaceFile puts the content of one file in the place of another, as those do who
// renew certificates: by a rename.
func replaceFile(t testing.TB, path, with string) {
	t.Helper()
	b, err := os.ReadFile(with)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

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
	ca := newAuthority(t)
	files := leaf{cert: filepath.Join(ca.dir, "live.crt"), key: filepath.Join(ca.dir, "live.key")}
	mount := filepath.Join(ca.dir, "mount")
	linked := leaf{cert: filepath.Join(mount, "tls.crt"), key: filepath.Join(mount, "tls.key")}
	// One name is in a file that is replaced, the other in a folder that a link leads to.
	renew := func(link bool) leaf {
		if !link {
			l := ca.issue(t, "files.test")
			replaceFile(t, files.key, l.key)
			replaceFile(t, files.cert, l.cert)
			return l
		}
		l := ca.issueFor(t, testRSAKey(), func(*x509.Certificate) {}, "link.test")
		dir := l.cert + ".d"
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(dir, "tls.crt"), l.cert)
		replaceFile(t, filepath.Join(dir, "tls.key"), l.key)
		pointTo(t, mount, dir)
		return l
	}
	renew(false)
	renew(true)
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, webConfig(listen, fmt.Sprintf("tls: {certificates: [%s, %s]}", files.yaml(), linked.yaml()), "check: {type: none}", member("db1", db.Addr())))

	stop := make(chan struct{})
	var clients sync.WaitGroup
	var made atomic.Int64
	for _, name := range []string{"files.test", "link.test"} {
		clients.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				c, err := dialTLS(t, listen, ca.asks(name))
				if err == nil {
					_, err = newClient(c).Ask()
					c.Close()
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				made.Add(1)
			}
		})
	}
	for i := range renewals {
		link, name := i%2 == 1, "files.test"
		if link {
			name = "link.test"
		}
		want := renew(link).serial()
		eventually(t, "the new certificate", func() bool {
			got, err := shown(t, listen, ca.asks(name))
			if err != nil {
				t.Fatal(err)
			}
			return got == want
		})
	}
	close(stop)
	clients.Wait()
	t.Logf("%d handshakes", made.Load())
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
	ca := newAuthority(t)
	live := leaf{cert: filepath.Join(ca.dir, "live.crt"), key: filepath.Join(ca.dir, "live.key")}
	first := ca.issue(t, "db.test")
	replaceFile(t, live.cert, first.cert)
	replaceFile(t, live.key, first.key)
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	p := start(t, webConfig(listen, live.ends(), "check: {type: none}", member("db1", db.Addr())))
	expiry := func() float64 {
		return p.Metrics(t)[fmt.Sprintf(`poise_certificate_expiry_timestamp_seconds{certificate=%q,service="web"}`, live.cert)]
	}
	serves := func(want leaf) {
		t.Helper()
		if got, err := shown(t, listen, ca.asks("db.test")); err != nil || got != want.serial() {
			t.Errorf("certificate %d is shown, not %d, %v", got, want.serial(), err)
		}
		if got := expiry(); got != float64(want.Leaf.NotAfter.Unix()) {
			t.Errorf("the metric says %v, not %v", got, want.Leaf.NotAfter.Unix())
		}
	}
	serves(first)

	// The certificate of another key, and that is all.
	later := func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(24 * time.Hour) }
	second := ca.issueFor(t, testRSAKey(), later, "db.test")
	replaceFile(t, live.cert, second.cert)
	eventually(t, "a warning", func() bool { return strings.Contains(p.Stderr(), "level=WARN") })
	serves(first)
	eventually(t, "it in the metric", func() bool { return p.Metrics(t)["poise_certificate_files_broken"] == 1 })
	if w := p.Status(t).Warnings; len(w) != 1 || !strings.Contains(w[0], "service web: tls.certificates[0]") || !strings.Contains(w[0], "does not belong") {
		t.Errorf("the status warns of %q", w)
	}
	if stdout, _, _ := cli(t, "status", "--socket", p.socket()); !strings.Contains(stdout, "\nwarning: service web: ") {
		t.Errorf("no warning in\n%s", stdout)
	}

	p.Signal(syscall.SIGHUP)
	eventually(t, "the reload to be refused", func() bool { return p.Metrics(t)["poise_config_last_reload_success"] == 0 })
	serves(first)
	if res := p.Reload(t, webConfig(listen, live.ends("alpn: [x]"), "check: {type: none}", member("db1", db.Addr()))); res.OK || !strings.Contains(res.Error, live.cert) {
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
	if err := os.Remove(live.cert); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	serves(first)
	replaceFile(t, live.cert, first.key)
	time.Sleep(time.Second)
	serves(first)

	replaceFile(t, live.key, second.key)
	replaceFile(t, live.cert, second.cert)
	eventually(t, "the second certificate", func() bool {
		got, err := shown(t, listen, ca.asks("db.test"))
		return err == nil && got == second.serial()
	})
	eventually(t, "the metric", func() bool { return expiry() == float64(second.Leaf.NotAfter.Unix()) })
	serves(second)
	p.MustReload(t, webConfig(listen, live.ends(), "check: {type: none}", member("db1", db.Addr())))
	serves(second)
	if m := p.Metrics(t); m["poise_config_last_reload_success"] != 1 {
		t.Error("the metric says that the reload has failed")
	}
	eventually(t, "all to be well", func() bool {
		return p.Metrics(t)["poise_certificate_files_broken"] == 0 && len(p.Status(t).Warnings) == 0
	})

	// The answer to a reload has what the log gets.
	if err := os.Chmod(live.key, 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := cli(t, "reload", "--socket", p.socket())
	if code != 0 || !strings.HasPrefix(stderr, "warning: services.web.tls.certificates[0].key: ") || !strings.Contains(stderr, "can be read by every user") {
		t.Errorf("reload: exit code %d, %q", code, stderr)
	}
}

// A start with a broken pair fails, and says what is wrong.
func TestTLSBrokenStart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, other := ca.issue(t, "db.test"), ca.issueFor(t, testRSAKey(), func(*x509.Certificate) {}, "db.test")
	mixed := leaf{cert: one.cert, key: other.key}
	p := launch(t, webConfig(addr(t), mixed.ends(), "", member("db1", "127.0.0.1:1")))
	if code := p.Wait(t); code != 1 || !strings.Contains(p.Stderr(), one.cert) {
		t.Errorf("exit code %d", code)
	}
}

// A SIGHUP takes up at once what has changed, and connections that are open go on.
func TestTLSReloadKeepsConnections(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, two := ca.issue(t, "db.test"), ca.issue(t, "db.test")
	db := backend(t, "db1", loadgen.Behaviour{})
	listen := addr(t)
	yaml := func(l leaf) string {
		return webConfig(listen, l.ends(), "check: {type: none}", member("db1", db.Addr()))
	}
	p := start(t, yaml(one))
	old := newClient(mustDialTLS(t, listen, ca.asks("db.test")))
	old.MustAsk(t)
	// One that is in the middle of its handshake.
	half := connect(t, listen)
	hello := clientHello(t, ca.asks("db.test"))
	if _, err := half.Write(hello[:len(hello)/2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handshake to have begun", func() bool {
		return p.Metrics(t)[`poise_tls_handshakes_active{service="web"}`] == 1
	})
	p.MustReload(t, yaml(two))
	if got, err := shown(t, listen, ca.asks("db.test")); err != nil || got != two.serial() {
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
