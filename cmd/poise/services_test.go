package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// startServer runs a real server until the test ends, and waits until it accepts
// connections.
func startServer(t *testing.T, addr string, cmd *exec.Cmd) {
	t.Helper()
	out, done := &output{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), out)
		}
	})
	eventually(t, cmd.Path+" to accept connections", func() bool {
		select {
		case <-done:
			t.Fatalf("%s ended:\n%s", cmd.Path, out)
		default:
		}
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// openDir is a folder that servers which run as somebody else can use.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "poise-server-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// MQTT over TLS that ends here, as brokers have it on port 8883. Messages are carried
// with QoS 1, to a session that was away.
func TestServiceMQTT(t *testing.T) {
	t.Parallel()
	broker, pub, sub := program(t, "mosquitto"), program(t, "mosquitto_pub"), program(t, "mosquitto_sub")
	ca := newAuthority(t)
	device := ca.issue(t, "device 7")
	dir, broker1, listen := openDir(t), addr(t), addr(t)
	host, port, _ := net.SplitHostPort(broker1)
	config := filepath.Join(dir, "mosquitto.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, "listener %s %s\nallow_anonymous true\n", port, host), 0o644); err != nil {
		t.Fatal(err)
	}
	startServer(t, broker1, exec.Command(broker, "-c", config))
	p := start(t, "log: {access_format: json}\n"+webConfig(listen, ca.issue(t, "127.0.0.1").ends("client_ca: "+ca.file),
		"", member("broker", broker1)))
	_, port, _ = net.SplitHostPort(listen)
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, append([]string{"-h", "127.0.0.1", "-p", port, "--cafile", ca.file, "--cert", device.cert, "--key", device.key, "-q", "1"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		return string(out)
	}
	run(sub, "-i", "reader", "-c", "-t", "t/#", "-E") // subscribes, and goes
	big := strings.Repeat("0123456789", 10_000)
	run(pub, "-t", "t/1", "-m", "hello")
	run(pub, "-t", "t/2", "-m", big)
	if got := run(sub, "-i", "reader", "-c", "-t", "t/#", "-C", "2", "-W", "20"); got != "hello\n"+big+"\n" {
		t.Errorf("%d bytes: %.100q", len(got), got)
	}
	p.logged(t, `"client_cn":"device 7"`, `"version":"TLSv1.3"`)
	out, err := exec.Command(pub, "-h", "127.0.0.1", "-p", port, "--cafile", ca.file, "-t", "t/3", "-m", "x").CombinedOutput()
	if err == nil {
		t.Errorf("without a certificate: %s", out)
	}
}

// SMTP, whose server speaks first: a mail is delivered. With a PROXY header the server
// knows whom it is from.
func TestServiceSMTP(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		unavailable(t, "OpenSMTPD needs root")
	}
	for _, proxied := range []bool{false, true} {
		t.Run(fmt.Sprintf("proxy=%v", proxied), func(t *testing.T) {
			t.Parallel()
			dir, mx, listen := openDir(t), addr(t), addr(t)
			host, port, _ := net.SplitHostPort(mx)
			config, mail, expects, pool := filepath.Join(dir, "smtpd.conf"), filepath.Join(dir, "mail"), "", "check: {type: none}"
			if proxied {
				expects, pool = " proxy-v2", pool+", send_proxy: v2"
			}
			text := fmt.Sprintf("listen on %s port %s%s\naction keep mda \"cat > %s\" virtual { \"@\" = nobody }\nmatch from any for any action keep\n", host, port, expects, mail)
			if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			// Its queue and sockets have fixed places, which are its own in a namespace.
			cmd := exec.Command("/bin/sh", "-c", `mount -t tmpfs tmpfs /var/spool && mkdir -m 711 /var/spool/smtpd && mount -t tmpfs -o mode=755 tmpfs /run && exec "$0" -d -f "$1"`,
				program(t, "smtpd"), config)
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			startServer(t, mx, cmd)
			start(t, webConfig(listen, "", pool, member("mx", mx)))

			c, err := smtp.NewClient(connectFrom(t, "127.0.0.5", listen), "mx.test")
			if err != nil {
				t.Fatal(err)
			}
			step := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			step("EHLO", c.Hello("client.test"))
			step("MAIL", c.Mail("a@b.test"))
			step("RCPT", c.Rcpt("c@d.test"))
			w, err := c.Data()
			step("DATA", err)
			body := strings.Repeat("A line of a mail that has many of them.\r\n", 5000)
			_, err = fmt.Fprintf(w, "Subject: test\r\n\r\n%s", body)
			step("the text", err)
			step("the dot", w.Close())
			step("QUIT", c.Quit())
			got := ""
			eventually(t, "the mail to be delivered", func() bool {
				b, err := os.ReadFile(mail)
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				got = string(b)
				return strings.HasSuffix(got, strings.ReplaceAll(body, "\r\n", "\n"))
			})
			if from := strings.Contains(got, "[127.0.0.5]"); from != proxied || !strings.Contains(got, "Subject: test") {
				t.Errorf("the mail is\n%.500s", got)
			}
		})
	}
}

// MariaDB, whose server speaks first: over a plain service, and with PROXY headers, by
// which it knows its clients.
func TestServiceMariaDB(t *testing.T) {
	t.Parallel()
	install, daemon, client := program(t, "mariadb-install-db"), program(t, "mariadbd"), program(t, "mariadb")
	dir, db := openDir(t), addr(t)
	data := filepath.Join(dir, "data")
	var owner []string
	if os.Getuid() == 0 {
		owner = []string{"--user=root"}
	}
	setUp := exec.Command(install, append([]string{"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db"}, owner...)...)
	if out, err := setUp.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	host, port, _ := net.SplitHostPort(db)
	socket := filepath.Join(dir, "s")
	startServer(t, db, exec.Command(daemon, append([]string{
		"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--port=" + port, "--bind-address=" + host, "--pid-file=" + filepath.Join(dir, "pid"),
		"--skip-name-resolve", "--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=0", "--proxy-protocol-networks=127.0.0.1",
	}, owner...)...))
	query := func(text string, args ...string) string {
		t.Helper()
		out, err := exec.Command(client, append(append([]string{"--no-defaults", "-NB"}, args...), "-e", text)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	query("CREATE USER poise@'%'; GRANT ALL ON *.* TO poise@'%'; CREATE DATABASE d; CREATE TABLE d.t (n INT)", "-u", "root", "-S", socket)

	for mode, from := range map[string]string{"off": "127.0.0.1", "v1": "127.0.0.5", "v2": "127.0.0.5"} {
		t.Run(mode, func(t *testing.T) {
			listen := addr(t)
			p := start(t, webConfig(listen, "", "send_proxy: "+mode+", check: {interval: 200ms}", member("db", db)))
			_, port, _ := net.SplitHostPort(listen)
			session := []string{"-u", "poise", "-h", "127.0.0.1", "-P", port, "--protocol=tcp"}
			config := mysql.NewConfig()
			config.User, config.Net, config.Addr = "poise", "tcp", listen
			config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
				return connectFrom(t, "127.0.0.5", listen), nil
			}
			connector, err := mysql.NewConnector(config)
			if err != nil {
				t.Fatal(err)
			}
			pool, sees := sql.OpenDB(connector), ""
			if err := pool.QueryRow("SELECT USER()").Scan(&sees); err != nil || sees != "poise@"+from {
				t.Errorf("the server sees %q, %v", sees, err)
			}
			pool.Close()
			if got := query("DELETE FROM d.t; INSERT INTO d.t VALUES (1), (2), (3); SELECT SUM(n), LENGTH(REPEAT('x', 1000000)) FROM d.t", session...); got != "6\t1000000" {
				t.Errorf("got %q", got)
			}
			if got := query("SELECT REPEAT('x', 1000000)", session...); len(got) != 1_000_000 {
				t.Errorf("%d bytes", len(got))
			}
			p.outcomes(t, "ok", 3)
			// Checks say that they are no clients.
			eventually(t, "two checks to have passed", func() bool {
				b := p.Backend(t, "web", "db")
				return b.State == "up" && b.Check.Up && b.Check.Probes >= 2
			})
		})
	}
}
