package tls

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

	"github.com/go-sql-driver/mysql"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// MQTT over TLS that ends here, as brokers have it on port 8883. Messages are carried
// with QoS 1, to a session that was away.
func TestServiceMQTT(t *testing.T) {
	t.Parallel()
	broker, pub, sub := rig.Program(t, "mosquitto"), rig.Program(t, "mosquitto_pub"), rig.Program(t, "mosquitto_sub")
	ca := rig.NewAuthority(t)
	device := ca.Issue(t, "device 7")
	dir, broker1, listen := rig.OpenDir(t), rig.Addr(t), rig.Addr(t)
	host, port, _ := net.SplitHostPort(broker1)
	config := filepath.Join(dir, "mosquitto.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, "listener %s %s\nallow_anonymous true\n", port, host), 0o644); err != nil {
		t.Fatal(err)
	}
	rig.StartServer(t, exec.Command(broker, "-c", config), syscall.SIGTERM, rig.Accepting(broker1))
	p := rig.Start(t, "log: {access_format: json}\n"+rig.WebConfig(listen, ca.Issue(t, "127.0.0.1").ServiceTLS("client_ca: "+ca.File),
		"", rig.Member("broker", broker1)))
	_, port, _ = net.SplitHostPort(listen)
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, append([]string{"-h", "127.0.0.1", "-p", port, "--cafile", ca.File, "--cert", device.Cert, "--key", device.Key, "-q", "1"}, args...)...)
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
	p.WantLogged(t, `"client_cn":"device 7"`, `"version":"TLSv1.3"`)
	out, err := exec.Command(pub, "-h", "127.0.0.1", "-p", port, "--cafile", ca.File, "-t", "t/3", "-m", "x").CombinedOutput()
	if err == nil {
		t.Errorf("without a certificate: %s", out)
	}
}

// SMTP, whose server speaks first: a mail is delivered. With a PROXY header the server
// knows whom it is from.
func TestServiceSMTP(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		rig.Unavailable(t, "OpenSMTPD needs root")
	}
	for _, proxied := range []bool{false, true} {
		t.Run(fmt.Sprintf("proxy=%v", proxied), func(t *testing.T) {
			t.Parallel()
			dir, mx, listen := rig.OpenDir(t), rig.Addr(t), rig.Addr(t)
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
				rig.Program(t, "smtpd"), config)
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			rig.StartServer(t, cmd, syscall.SIGTERM, rig.Accepting(mx))
			rig.Start(t, rig.WebConfig(listen, "", pool, rig.Member("mx", mx)))

			c, err := smtp.NewClient(rig.ConnectFrom(t, "127.0.0.5", listen), "mx.test")
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
			rig.Eventually(t, "the mail to be delivered", func() bool {
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
	install, daemon, client := rig.Program(t, "mariadb-install-db"), rig.Program(t, "mariadbd"), rig.Program(t, "mariadb")
	dir, db := rig.OpenDir(t), rig.Addr(t)
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
	server := exec.Command(daemon, append([]string{
		"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--port=" + port, "--bind-address=" + host, "--pid-file=" + filepath.Join(dir, "pid"),
		"--skip-name-resolve", "--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=0", "--proxy-protocol-networks=127.0.0.1",
	}, owner...)...)
	rig.StartServer(t, server, syscall.SIGTERM, rig.Accepting(db))
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
			listen := rig.Addr(t)
			p := rig.Start(t, rig.WebConfig(listen, "", "send_proxy: "+mode+", check: {interval: 200ms}", rig.Member("db", db)))
			_, port, _ := net.SplitHostPort(listen)
			session := []string{"-u", "poise", "-h", "127.0.0.1", "-P", port, "--protocol=tcp"}
			config := mysql.NewConfig()
			config.User, config.Net, config.Addr = "poise", "tcp", listen
			config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
				return rig.ConnectFrom(t, "127.0.0.5", listen), nil
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
			p.WantOutcomes(t, "ok", 3)
			// Checks say that they are no clients.
			rig.Eventually(t, "two checks to have passed", func() bool {
				b := p.Backend(t, "web", "db")
				return b.State == "up" && b.Check.Up && b.Check.Probes >= 2
			})
		})
	}
}
