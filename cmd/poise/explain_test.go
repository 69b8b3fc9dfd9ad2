package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/internal/config"
)

const explainedConfig = `
cluster: {secret: "0123456789abcdef"}
runtime: {allow_exec: true}
services:
  db:
    listen: ["[::]:5432", "10.0.0.1:5433"]
    pool: pg
    max_connections: 5000
    proxy_protocol: {accept: any, trusted: [10.0.0.2]}
    access: {allow: [10.0.0.0/8], deny: [10.1.0.0/16], deny_files: ["${LIST}"]}
    limits: {per_source: 100, rate: 500, source_rate: 0.5, mask4: 24}
    on_refuse: drop
    tls: {certificates: [{cert: /a.crt, key: /a.key}], client_ca: /ca.pem, alpn: [postgresql]}
    starttls: postgres
  dns: {listen: ["10.0.0.1:53"], protocol: udp, pool: dns, udp: {max_sessions: 10, replies: 2}}
  names:
    listen: ["10.0.0.9:443"]
    freebind: true
    keepalive: {unanswered: 20s}
    sni: {db.example.org: [{pool: web, alpn: [h2, h3]}, dns2], "*.example.org": web, not_tls: dns2}
    limits: {rate: 9}
  open:
    listen: [":81"]
    pool: dns2
    timeouts: {connect: 500ms, connect_total: 1500ms, idle: 0s, half_close: 1h}
    retries: 0
    buffer: 0
    keepalive: {probes: 0}
  queued: {listen: [":82-84", "0.0.0.0:90"], pool: queued, retries: 1, keepalive: {probes: 0, unanswered: 20s}}
  stats: {listen: [":8125"], protocol: udp, pool: collectors, udp: {spray: true}}
  time: {listen: [":123"], protocol: udp, pool: time, udp: {idle: 5s, replies: 1, retry: false}}
pools:
  pg:
    check: {type: postgres, postgres: {user: poise, password: p, tls: true, role: primary}, tls: {ca: /ca.pem}}
    proxy_tlvs: {unique_id: true, custom: {"0xE0": "zone a"}}
    backends:
      - {name: db1, address: "10.0.1.1:5432", weight: 50, max_connections: 200}
      - {address: "[fd00::1]:5432", backup: true}
    source: client
    send_proxy: v2
    replay: 1k
    tls: {server_name: pg.internal, starttls: postgres}
  dns: {backends: [10.0.1.1:53, 10.0.1.9:53], check: {type: none}, source: client}
  dns2:
    ab: {a: p2c, b: ewma, split: 0.25}
    backends: [pg.example.org:53, unix:/run/x]
    backends_file: /etc/poise/more
  collectors: {backends: [10.0.1.5:8125], check: {type: tcp, port: 8126, fall: 1}, send_proxy: v2-each}
  queued:
    backends: ["srv:_app._tcp.example.org", {name: app, address: "app.example.org:80", backup: true, max_connections: 0}]
    resolve: {servers: [10.0.0.53, "[fd00::53]:5353"], min_ttl: 5s, hold: 0s}
    max_connections: 100
    queue: {size: 500, timeout: 2s}
    balance: maglev
    hash: {mask4: 24, bound: 1.25}
    on_down: close
    on_remove: drain 30s
    close_backup_on_recovery: true
    sticky: {by: source, ttl: 1h}
    slow_start: 90s
    panic: 40
    retry_budget: {percent: 10, floor: 1}
    check: {interval: 10s, timeout: 250ms, rise: 1, initial: down}
    passive: {failures: 3, base: 1s, max: 1m, max_percent: 30, half_open: 2}
  time: {passive: {failures: 0}, backends: [10.0.1.6:123], checks: [{type: exec, exec: {command: [/bin/ask]}}, {type: http, port: 8008}], send_proxy: v2}
  web: {balance: first, backends: [10.0.1.3:443], source: 10.0.0.1, send_proxy: v1}
`

const explanationWanted = `
service db
  listens on    [::]:5432 tcp, every IPv6 address
                10.0.0.1:5433 tcp
  PROXY in      version 1 or 2, required of 10.0.0.2/32; all others are the clients themselves
  lets in       nobody of 10.1.0.0/16, ${LIST} (2 when merged): refused_acl
                nobody but 10.0.0.0/8: refused_acl
                0.5 a second from a source, an IPv4 /24 or an IPv6 /64: refused_rate
                500 a second in all: refused_rate
                100 at once from a source, an IPv4 /24 or an IPv6 /64: refused_limit
                5000 at once in all, beyond which they are closed: refused_limit
  refuses by    silence; without CAP_NET_ADMIN (configs/systemd/net-admin.conf) by a reset that
                  clients one hop away see
  begins with   PostgreSQL's SSLRequest, which is granted, then TLS
  TLS           ends here: TLS 1.2 or later, for postgresql
                certificate /a.crt, key /a.key
                at most 1000 handshakes under way at once
                clients resume with keys of this process, new ones every 8h
                a client must have a certificate of an authority in /ca.pem
  first bytes   within 5s
  timeouts      2s for a connect, 10s for all connects of a client
                10m without a byte in either direction
                30s without progress after one side has ended
  retries       2 further backends after a failed connect, as far as the pool's retry budget goes
  keepalive     after 1m of silence 6 probes, one every 10s; dead after 2m without an answer
  buffer        262144 bytes in each place where they wait, when many connections are blocked
  goes to       pool pg

service dns
  listens on    10.0.0.1:53 udp
  lets in       10 at once in all, beyond which datagrams are dropped: refused_limit
  sessions      end after 30s idle or 2 replies a datagram, at most 10
  retries       once: what a backend has refused, or not answered when it goes down, as far as the
                  pool's retry budget goes
  goes to       pool dns
  off           limits.source_rate, limits.rate, limits.per_source

service names
  listens on    10.0.0.9:443 tcp
                also while this host does not have the address
  lets in       9 a second in all: refused_rate
  refuses by    a reset
  first bytes   within 5s
  timeouts      2s for a connect, 10s for all connects of a client
                10m without a byte in either direction
                30s without progress after one side has ended
  retries       2 further backends after a failed connect, as far as the pool's retry budget goes
  keepalive     after 1m of silence 6 probes, one every 10s; dead after 2m without an answer
                bytes on the way: dead after 20s without an answer
  buffer        262144 bytes in each place where they wait, when many connections are blocked
  goes to       by the name in the client's TLS, which is forwarded as it is:
                *.example.org: pool web
                db.example.org, for h2 or h3: pool web
                db.example.org: pool dns2
                any other name, or none: closed
                no TLS: pool dns2
                silence: closed
  off           limits.source_rate, limits.per_source, max_connections

service open
  listens on    :81 tcp, every address, IPv4 and IPv6
  lets in       everybody
  timeouts      500ms for a connect, 1.5s for all connects of a client
                1h without progress after one side has ended
  goes to       pool dns2
  off           limits.source_rate, limits.rate, limits.per_source, max_connections, timeouts.idle,
                  retries, keepalive.probes, buffer

service queued
  listens on    :82-84 tcp, every address, IPv4 and IPv6
                0.0.0.0:90 tcp, every IPv4 address
  lets in       everybody
  timeouts      2s for a connect, 10s for all connects of a client
                10m without a byte in either direction
                30s without progress after one side has ended
  retries       1 further backend after a failed connect, as far as the pool's retry budget goes
  keepalive     bytes on the way: dead after 20s without an answer
  buffer        262144 bytes in each place where they wait, when many connections are blocked
  goes to       pool queued
  off           limits.source_rate, limits.rate, limits.per_source, max_connections,
                  keepalive.probes

service stats
  listens on    :8125 udp, every address, IPv4 and IPv6
  lets in       everybody
  sessions      none: each datagram by itself, nothing comes back
  goes to       pool collectors
  off           limits.source_rate, limits.rate

service time
  listens on    :123 udp, every address, IPv4 and IPv6
  lets in       everybody
  sessions      end after 5s idle or 1 reply a datagram, no limit of their own
  goes to       pool time
  off           limits.source_rate, limits.rate, limits.per_source, udp.retry

pool collectors
  balance       least-conn
  backends      10.0.1.5:8125, weight 100
  check         tcp on port 8126 every 2s, 500ms when the state may change, 5s while down; each
                  within 1s
                down after 1 failure, up after 2 passed, up before the first verdict
  passive check out for 10s after 5 failures in a row, each time twice as long, up to 5m
                at most 50 % of the backends at once; at the end 1 trial
                counts: a UDP port where nothing listens
  PROXY out     version 2, in each datagram
  off           max_connections, sticky, slow_start, panic

pool dns
  balance       least-conn
  backends      10.0.1.1:53, weight 100
                10.0.1.9:53, weight 100
  check         none
  passive check out for 10s after 5 failures in a row, each time twice as long, up to 5m
                at most 50 % of the backends at once; at the end 1 trial
                counts: a UDP port where nothing listens
  open clients  of a backend that is removed: stay with it
  retry budget  20 % of the new connections, and 10 a second
  source        the client's own address; takes CAP_NET_ADMIN and the rules below
  off           max_connections, sticky, slow_start, panic

pool dns2
  balance       p2c for 25 % and ewma for the rest
  backends      unix:/run/x, weight 100
                by the addresses of pg.example.org, port 53, weight 100
                by the list in /etc/poise/more
  names         asked of the host's name servers, every 1s to 5m
                members stay for 10m after a name has none
  check         tcp every 2s, 500ms when the state may change, 5s while down; each within 1s
                down after 3 failures, up after 2 passed, up before the first verdict
  passive check out for 10s after 5 failures in a row, each time twice as long, up to 5m
                at most 50 % of the backends at once; at the end 1 trial
                counts: failed connects, resets and timeouts before the first byte, vanished hosts
                what a client may have caused counts if it comes from three sources or more
  open clients  of a backend that its check finds down: stay with it
                of a backend that is removed: stay with it
                of a backup, once another backend can be used again: stay with it
  retry budget  20 % of the new connections, and 10 a second
  off           max_connections, queue, sticky, slow_start, panic, replay

pool pg
  balance       least-conn
  backends      db1: 10.0.1.1:5432, weight 50, at most 200 at once
                [fd00::1]:5432, weight 100, backup, no limit
  check         postgres every 2s, 500ms when the state may change, 5s while down; each within 1s
                postgres: logs in as poise with a password, has to be a primary, over TLS, verified
                  by /ca.pem
                down after 3 failures, up after 2 passed, up before the first verdict
  passive check out for 10s after 5 failures in a row, each time twice as long, up to 5m
                at most 50 % of the backends at once; at the end 1 trial
                counts: failed connects, failed TLS, resets and timeouts before the first byte,
                  vanished hosts
                what a client may have caused counts if it comes from three sources or more
  open clients  of a backend that its check finds down: stay with it
                of a backend that is removed: stay with it
                of a backup, once another backend can be used again: stay with it
  retry budget  20 % of the new connections, and 10 a second
  source        the client's own address; takes CAP_NET_ADMIN and the rules below
  PROXY out     version 2
                with the addresses, and where it is known: the server name, the agreed protocol, the
                  client's TLS and certificate, a number of the connection, field 0xE0 of 6 bytes
  TLS           after PostgreSQL's SSLRequest, TLS 1.2 or later, named pg.internal, verified by the
                  system's authorities
  replay        up to 1024 bytes of the client to another backend, if one ends before it answers
  off           queue, sticky, slow_start, panic

pool queued
  balance       maglev
                by the client's address, of which 24 bits count in IPv4 and 128 in IPv6
                seeded by cluster.secret: a stranger cannot tell which address leads where
                up to 1.25 times a backend's fair share; what is beyond goes to others
  backends      by the SRV records of _app._tcp.example.org, at most 100 at once
                app: by the addresses of app.example.org, port 80, weight 100, backup, no limit
  names         asked of name servers 10.0.0.53:53 [fd00::53]:5353, every 5s to 5m
  check         tcp every 10s, 500ms when the state may change, 5s while down; each within 250ms
                down after 3 failures, up after 1 passed, down before the first verdict
  passive check out for 1s after 3 failures in a row, each time twice as long, up to 1m
                at most 30 % of the backends at once; at the end 2 trials
                counts: failed connects, resets and timeouts before the first byte, vanished hosts
                what a client may have caused counts if it comes from three sources or more
  open clients  of a backend that its check finds down: are closed, spread over one check interval
                  and 10s at most
                of a backend that is removed: may go on for 30s, then are closed
                of a backup, once another backend can be used again: are closed
  queue         500 clients, each for up to 2s, when all backends are full
  sticky        a source keeps its backend for 1h after its last connection; 102400 sources at most
  slow start    1m30s until a backend that is new or back has its full share
  panic         if fewer than 40 % of the backends are healthy, all are used
  retry budget  10 % of the new connections, and 1 a second
  off           resolve.hold, replay

pool time
  balance       least-conn
  backends      10.0.1.6:123, weight 100
  check         exec and http on port 8008 every 2s, 500ms when the state may change, 5s while down;
                  each within 1s
                exec: runs /bin/ask
                http: GET /health, expects status 200-399
                down after 3 failures, up after 2 passed, up before the first verdict
  open clients  of a backend that its check finds down: stay with it
                of a backend that is removed: stay with it
  PROXY out     version 2, of UDP in the first datagram of each session
  off           max_connections, passive.failures, sticky, slow_start, panic

pool web
  balance       first
  backends      10.0.1.3:443, weight 100
  check         tcp every 2s, 500ms when the state may change, 5s while down; each within 1s
                down after 3 failures, up after 2 passed, up before the first verdict
  passive check out for 10s after 5 failures in a row, each time twice as long, up to 5m
                at most 50 % of the backends at once; at the end 1 trial
                counts: failed connects, resets and timeouts before the first byte, vanished hosts
                what a client may have caused counts if it comes from three sources or more
  open clients  of a backend that its check finds down: stay with it
                of a backend that is removed: stay with it
  retry budget  20 % of the new connections, and 10 a second
  source        10.0.0.1
  PROXY out     version 1
  off           max_connections, queue, sticky, slow_start, panic, replay

source: client, of dns, pg
  Poise has to have CAP_NET_ADMIN (configs/systemd/net-admin.conf).
  Backends have to send what is for clients through this host. Here, as root
  (scripts/transparent.sh up does the same, and down undoes it):

`

// explained is what --explain says of a configuration.
func explained(t *testing.T, yaml string) (string, error) {
	t.Helper()
	f, err := config.Parse("poise.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = explain(&b, f)
	return b.String(), err
}

func TestExplain(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("10.9.0.0/16\n10.9.1.0/24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LIST", list) // hidden, and so of the same length everywhere
	got, err := explained(t, explainedConfig)
	if err != nil {
		t.Fatal(err)
	}
	rules := printedRules(t, "--backends", "10.0.1.1", "10.0.1.9", "fd00::1")
	if diff := cmp.Diff(explanationWanted+rules, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// docs/operations.md shows what is said of a configuration that it shows too.
func TestExplainDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(document), "\n### What a configuration comes to\n")
	_, section, _ = strings.Cut(section, "\n```yaml\n")
	shown, section, _ := strings.Cut(section, "\n```\n")
	_, section, _ = strings.Cut(section, "\n```\n")
	want, _, _ := strings.Cut(section, "\n```\n")
	if shown == "" || want == "" {
		t.Fatal("docs/operations.md does not show a configuration and what it comes to")
	}
	got, err := explained(t, shown)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, strings.TrimSpace(got)); diff != "" {
		t.Errorf("(-docs/operations.md +got)\n%s", diff)
	}
}

// A value with blanks, longer than a line, is hidden as well: it is not broken first.
func TestExplainHidesLongVariables(t *testing.T) {
	t.Setenv("POISE_TEST_PATH", "/etc/"+strings.Repeat("secret words ", 20)+"end")
	got, err := explained(t, `
services: {web: {listen: [":80"], pool: web}}
pools: {web: {backends_file: "${POISE_TEST_PATH}"}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "secret") || !strings.Contains(got, "by the list in ${POISE_TEST_PATH}\n") {
		t.Error(got)
	}
}

// Where backends are not known, the rules are for all there might be.
func TestExplainUnknownBackends(t *testing.T) {
	got, err := explained(t, `
services: {web: {listen: [":80"], pool: web}}
pools: {web: {backends: [10.0.1.1:80, "web.example.org:80"], source: client}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if rules := printedRules(t); !strings.HasSuffix(got, "\n\n"+rules) {
		t.Errorf("%s\ndoes not end with\n%s", got, rules)
	}
}
