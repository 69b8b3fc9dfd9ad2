package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/loadgen"
)

// benchOutput runs `poise bench` with the arguments and returns what it wrote to
// standard output.
func benchOutput(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := benchCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(new(bytes.Buffer))
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func benchBackendAddr(t *testing.T, how loadgen.Behaviour) string {
	t.Helper()
	b, err := loadgen.NewBackend("db1", "", how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b.Addr().String()
}

func TestBenchReport(t *testing.T) {
	addr := benchBackendAddr(t, loadgen.Behaviour{})
	out, err := benchOutput(t, "tcp", addr, "--clients", "3", "--requests", "30", "--requests-per-connection", "10")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"3 clients to " + addr + ", 30 requests, 64 bytes each, 10 on a connection\n",
		"requests     30 answered in ",
		"failed       0\n",
		"latency      p50 ",
		"\ndb1                          30  100.0% ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestBenchJSON(t *testing.T) {
	addr := benchBackendAddr(t, loadgen.Behaviour{Delay: time.Millisecond})
	out, err := benchOutput(t, "tcp", addr, "--json", "--requests", "20", "--clients", "2", "--rate", "500")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r loadgen.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if r.Requests != 20 || r.Failed != 0 || r.Connections != 20 || len(r.Errors) != 0 || r.Elapsed <= 0 {
		t.Errorf("report %+v, want 20 requests on 20 connections and no failure", r)
	}
	if len(r.Backends) != 1 || r.Backends[0].Name != "db1" || r.Backends[0].Requests != 20 {
		t.Errorf("backends %+v, want db1 with 20", r.Backends)
	}
	if l := r.Latency; l.P50 < 0.001 || l.P50 > l.P95 || l.P95 > l.P99 || l.P99 > l.Max {
		t.Errorf("latency %+v, want rising seconds from the backend's delay on", l)
	}
}

func TestBenchFailsWithTheRequests(t *testing.T) {
	addr := benchBackendAddr(t, loadgen.Behaviour{Reset: true})
	out, err := benchOutput(t, "tcp", addr, "--requests", "5", "--clients", "1")
	if err == nil || err.Error() != "5 of 5 requests failed" {
		t.Errorf("error %v, want 5 of 5", err)
	}
	if !strings.Contains(out, "\nreset                         5  ") {
		t.Errorf("no reset in\n%s", out)
	}
}

func TestBenchUDP(t *testing.T) {
	db, err := loadgen.NewDatagramBackend("db1", "", loadgen.DatagramBehaviour{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	addr := db.Addr().String()
	args := []string{"udp", addr, "--clients", "1", "--requests", "30", "--timeout", "20s"}
	out, err := benchOutput(t, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"1 client to " + addr + ", 30 requests, 64 bytes each, one socket per client\n",
		"requests     30 answered in ",
		"lost         0, 0% of all\n",
		"sockets      1\n",
		"latency      p50 ",
		"\ndb1                          30  100.0% ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}

	if out, err = benchOutput(t, append(args, "--json")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r loadgen.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Requests != 30 || r.Lost == nil || *r.Lost != 0 {
		t.Errorf("report %+v, %v, want 30 requests and no loss", r, err)
	}

	db.Behave(loadgen.DatagramBehaviour{Mode: loadgen.Sink})
	out, err = benchOutput(t, "udp", addr, "--clients", "3", "--requests", "6", "--timeout", "50ms")
	if err == nil || err.Error() != "6 of 6 requests failed" || !strings.Contains(out, "lost         6, 100% of all\n") {
		t.Errorf("error %v, want 6 losses\n%s", err, out)
	}
}

func TestBenchRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"127.0.0.1:1", "127.0.0.1:2"},
		{"127.0.0.1:1", "--clients", "0"},
		{"127.0.0.1:1", "--size", "0"},
		{"127.0.0.1:1", "--size", "65537"},
		{"127.0.0.1:1", "--rate", "-1"},
		{"no-port", "--requests", "1"},
		{"127.0.0.1:0", "--requests", "1"},
		{"127.0.0.1:70000", "--requests", "1"},
		{"::1:80", "--requests", "1"},
		{"no-such-host.invalid:80", "--requests", "1"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			if out, err := benchOutput(t, append([]string{network}, args...)...); err == nil || out != "" {
				t.Errorf("%s %q is accepted, or begun:\n%s", network, args, out)
			}
		}
	}
}

// What is missing has a name, and what is wrong is said before anything is done.
func TestBenchNamesTheAddress(t *testing.T) {
	for want, args := range map[string][]string{
		"ADDR is missing: the address to load, host:port\nSee 'poise bench udp --help'.\n":            {"udp"},
		"one ADDR is wanted, and there is \"b:2\" after a:1\nSee 'poise bench tcp --help'.\n":         {"tcp", "a:1", "b:2"},
		"address \"db\": want host:port, such as 127.0.0.1:5432 or [::1]:5432\nSee 'poise bench tcp":  {"tcp", "db"},
		"address \"db:pg\": want a port from 1 to 65535, or the name of one\nSee 'poise bench udp --": {"udp", "db:pg"},
	} {
		var stdout, stderr bytes.Buffer
		root := rootCommand()
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		code := execute(root, append([]string{"bench"}, args...))
		if code != exitUsage || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("%q: exit code %d, %q, %q, want %q", args, code, &stdout, &stderr, want)
		}
	}
}
