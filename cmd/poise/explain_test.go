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
runtime: {allow_exec: true}
services:
  db:
    listen: ["[::]:5432", "10.0.0.1:5433"]
    pool: pg
    max_connections: 5000
    proxy_protocol: {accept: any, trusted: [10.0.0.2]}
    access: {allow: [10.0.0.0/8], deny: [10.1.0.0/16], deny_files: [LIST]}
    limits: {per_source: 100, rate: 500, source_rate: 0.5, mask4: 24}
    on_refuse: drop
    tls: {certificates: [{cert: /a.crt, key: /a.key}], client_ca: /ca.pem, alpn: [postgresql]}
    starttls: postgres
  dns: {listen: ["10.0.0.1:53"], protocol: udp, pool: dns, udp: {max_sessions: 10, replies: 2}}
  names:
    listen: [":443"]
    sni: {db.example.org: [{pool: web, alpn: [h2, h3]}, dns2], "*.example.org": web, not_tls: dns2}
    limits: {rate: 9}
  open: {listen: [":81"], pool: dns2}
  stats: {listen: [":8125"], protocol: udp, pool: collectors, udp: {spray: true}}
  time: {listen: [":123"], protocol: udp, pool: time, udp: {idle: 5s, replies: 1}}
pools:
  pg:
    backends: [10.0.1.1:5432, {address: "[fd00::1]:5432", backup: true}]
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
  time: {backends: [10.0.1.6:123], checks: [{type: exec, exec: {command: [/bin/ask]}}, {type: http, port: 8008}], send_proxy: v2}
  web: {balance: first, backends: [10.0.1.3:443], source: 10.0.0.1, send_proxy: v1}
`

const explanationWanted = `
service db
  listens on    [::]:5432 tcp, IPv6 only
                10.0.0.1:5433 tcp
  PROXY in      version 1 or 2, required of 10.0.0.2/32; all others are the clients themselves
  lets in       nobody of 10.1.0.0/16, LIST (2 when merged): refused_acl
                nobody but 10.0.0.0/8: refused_acl
                0.5 a second from a source, an IPv4 /24 or an IPv6 /64: refused_rate
                500 a second in all: refused_rate
                100 at once from a source, an IPv4 /24 or an IPv6 /64: refused_limit
                5000 at once in all, beyond which they are closed: refused_limit
  refuses by    silence; without CAP_NET_ADMIN (configs/systemd/net-admin.conf) by a reset that clients one hop away see
  begins with   PostgreSQL's SSLRequest, which is granted, then TLS
  TLS           ends here: 1 certificate, TLS 1.2 or later, for postgresql
                a client must have a certificate of an authority in /ca.pem
  first bytes   within 5s
  goes to       pool pg

service dns
  listens on    10.0.0.1:53 udp
  lets in       10 at once in all, beyond which datagrams are dropped: refused_limit
  sessions      end after 30s idle or 2 replies a datagram, at most 10
  retries       once: what a backend has refused, or not answered when it goes down
  goes to       pool dns

service names
  listens on    [::]:443 tcp
  lets in       9 a second in all: refused_rate
  refuses by    a reset
  first bytes   within 5s
  goes to       by the name in the client's TLS, which is forwarded as it is:
                *.example.org: pool web
                db.example.org, for h2 or h3: pool web
                db.example.org: pool dns2
                any other name, or none: closed
                no TLS: pool dns2
                silence: closed

service open
  listens on    [::]:81 tcp
  lets in       everybody
  goes to       pool dns2

service stats
  listens on    [::]:8125 udp
  lets in       everybody
  sessions      none: each datagram by itself, nothing comes back
  goes to       pool collectors

service time
  listens on    [::]:123 udp
  lets in       everybody
  sessions      end after 5s idle or 1 reply a datagram, no limit of their own
  retries       once: what a backend has refused, or not answered when it goes down
  goes to       pool time

pool collectors
  balance       least-conn
  backends      10.0.1.5:8125
  check         tcp on port 8126 every 2s, down after 1 failure, up after 2 passed
  PROXY out     version 2, in each datagram

pool dns
  balance       least-conn
  backends      10.0.1.1:53
                10.0.1.9:53
  check         none
  source        the client's own address; takes CAP_NET_ADMIN and the rules below

pool dns2
  balance       p2c for 25 % and ewma for the rest
  backends      unix:/run/x
                by the addresses of pg.example.org, port 53
                by the list in /etc/poise/more
  check         tcp every 2s, down after 3 failures, up after 2 passed

pool pg
  balance       least-conn
  backends      10.0.1.1:5432
                [fd00::1]:5432, backup
  check         tcp every 2s, down after 3 failures, up after 2 passed
  source        the client's own address; takes CAP_NET_ADMIN and the rules below
  PROXY out     version 2
  TLS           after PostgreSQL's SSLRequest, TLS 1.2 or later, named pg.internal, verified by the system's authorities
  replay        up to 1024 bytes of the client to another backend, if one ends before it answers

pool time
  balance       least-conn
  backends      10.0.1.6:123
  check         exec and http on port 8008 every 2s, down after 3 failures, up after 2 passed
  PROXY out     version 2, of UDP in the first datagram of each session

pool web
  balance       first
  backends      10.0.1.3:443
  check         tcp every 2s, down after 3 failures, up after 2 passed
  source        10.0.0.1
  PROXY out     version 1

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
	got, err := explained(t, strings.ReplaceAll(explainedConfig, "LIST", list))
	if err != nil {
		t.Fatal(err)
	}
	got = strings.ReplaceAll(got, list, "LIST")
	rules := printedRules(t, "--backends", "10.0.1.1", "10.0.1.9", "fd00::1")
	if diff := cmp.Diff(explanationWanted+rules, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
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

// The lists are read, so what is wrong with them comes out: a reload would be
// refused.
func TestCheckReadsLists(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	path := write(t, "services: {web: {listen: [\":80\"], pool: web, access: {allow_files: ["+list+"]}}}\npools: {web: {backends: [10.0.1.1:80]}}\n")
	for content, want := range map[string]string{
		"\n10.0.0.300\n": "services.web.access.allow_files[0]: " + list + `:2: "10.0.0.300" is neither`,
		"":               "",
	} {
		if err := os.WriteFile(list, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"check"}, {"check", "--explain"}} {
			stdout, stderr, code := cli(t, append(args, "-c", path)...)
			if (code != 0) != (want != "") || !strings.Contains(stderr, want) || (code == 0) != (stdout != "") {
				t.Errorf("%v of %q: exit code %d, %q, %q", args, content, code, stdout, stderr)
			}
			if explains := strings.Contains(stdout, "nobody but "+list+" (0 when merged)"); explains != (code == 0 && len(args) == 2) {
				t.Errorf("%v of %q: %s", args, content, stdout)
			}
		}
	}
}
