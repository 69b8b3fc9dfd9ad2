package admin

import (
	"net/http"
	"strings"
	"testing"
)

// TestHosts: the read-only address answers only requests that call it by an address, by
// localhost or by a name that it was told of. The control socket answers to any name.
func TestHosts(t *testing.T) {
	d := &fake{status: sample()}
	url, s := startHTTP(t, d)
	s.AnswerTo([]string{"lb1.example.org"})
	asked := func(host string) (*http.Response, string) {
		req, err := http.NewRequest("GET", url+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		return do(t, newClient(), req)
	}
	for _, host := range []string{
		"127.0.0.1:9905", "192.0.2.7", "[::1]:9905", "[2001:db8::1]", "[fe80::1%25eth0]:1", "localhost", "LocalHost:80", "localhost.",
		"lb1.example.org", "LB1.example.ORG.:9905",
	} {
		if resp, body := asked(host); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", host, resp.Status, body)
		}
	}
	for _, host := range []string{
		"evil.example", "evil.example:9905", "xlb1.example.org", "lb1.example.org.evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3", "xn--9",
	} {
		resp, body := asked(host)
		if resp.StatusCode != http.StatusMisdirectedRequest || !strings.Contains(body, "admin.hosts") || strings.Contains(body, "postgres") {
			t.Errorf("%s: %s %.200s", host, resp.Status, body)
		}
		if resp.Header.Get("Content-Security-Policy") == "" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", host, resp.Header)
		}
	}
	s.AnswerTo(nil)
	if resp, _ := asked("lb1.example.org"); resp.StatusCode != http.StatusMisdirectedRequest {
		t.Error(resp.Status)
	}

	path, _ := startSocket(t, d)
	if resp, _ := ask(t, NewClient(path).http, "GET", "http://anything/livez"); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}
