package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"io"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func render(t *testing.T, target string, s Status) string {
	t.Helper()
	w := httptest.NewRecorder()
	writePage(w, httptest.NewRequest("GET", target, nil), s)
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatal(w.Code, w.Header())
	}
	return w.Body.String()
}

// wellFormed checks that every element that is opened is closed.
func wellFormed(t *testing.T, html string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(html))
	dec.Strict = false
	dec.AutoClose = xml.HTMLAutoClose
	dec.Entity = xml.HTMLEntity
	depth := 0
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%d elements are left open", depth)
	}
}

func TestPage(t *testing.T) {
	html := render(t, "/", sample())
	wellFormed(t, html)
	for _, want := range []string{
		"<title>poise: 6 of 11 backends up</title>", `http-equiv="refresh"`, "/?refresh=off",
		`<span class="pill down">down</span>`, "L4CON: connect: connection refused (for 3m 12s)",
		"no backend to send connections to", `<span class="pill half-open">half-open</span>`, "panic: too few", "17 waiting",
		"ejected for 40s (on trial in 8s)", "slow start: 35 % of its share", "99.9 %", "ended: ok 8.40M, client_reset 10.8k",
		"refused: tls_failed 1204, refused_acl 77", "TLS: 8.41M handshakes, 80.1 % resumed", `<td data-label="Protocol">udp</td>`,
		"datagrams: in 4.12M (1210/s)", "dropped: no_backend 4, too_large 1", "datagrams: 41.2k, each balanced by itself",
		`<span class="pill bad">expired 1 day ago</span>`, `<span class="pill warn">in 13 days</span>`, "in 61 days",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s", want)
		}
	}
	if paused := render(t, "/?refresh=off", sample()); strings.Contains(paused, "http-equiv=\"refresh\"") {
		t.Error("still refreshes")
	}
	wellFormed(t, render(t, "/", Status{}))

	refused := sample()
	refused.LastReload = ReloadInfo{At: refused.Now, Error: "line 1\nline <2>"}
	html = render(t, "/", refused)
	wellFormed(t, html)
	if !strings.Contains(html, "line 1\nline &lt;2&gt;") || !strings.Contains(html, "was refused") {
		t.Error(html)
	}
}

// The page needs nothing but itself, and the policy lets its style through.
func TestPageIsSelfContained(t *testing.T) {
	html := render(t, "/", sample())
	for _, m := range regexp.MustCompile(`(?:src|href|url)\s*[=(]\s*["']?([^"' )>]*)`).FindAllStringSubmatch(html, -1) {
		if !strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "data:") || strings.HasPrefix(m[1], "//") {
			t.Errorf("refers to %s", m[1])
		}
	}
	if strings.Contains(html, "<script") || strings.Contains(html, " style=") {
		t.Error("has what the policy forbids")
	}
	_, rest, _ := strings.Cut(html, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	if !strings.Contains(contentPolicy, base64.StdEncoding.EncodeToString(sum[:])) {
		t.Error("the policy does not allow the style sheet")
	}
}

// TestPageFits: at 1024 px the columns of fixed width leave room for names, and on a
// phone, where there is no header, every cell says what it is.
func TestPageFits(t *testing.T) {
	html := render(t, "/", sample())
	widths := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)(?:^|} )(?:(\.services) )?\.(\w+) \{ width: (\d+)px; \}`).FindAllStringSubmatch(pageStyle, -1) {
		n, _ := strconv.Atoi(m[3])
		widths[m[1]+m[2]] = n
	}
	for i, group := range regexp.MustCompile(`<colgroup>.*</colgroup>`).FindAllString(html, -1) {
		sum := 0
		for _, m := range regexp.MustCompile(`<col class="(\w+)">`).FindAllStringSubmatch(group, -1) {
			if n, own := widths[".services"+m[1]]; own && i == 0 {
				sum += n
			} else {
				sum += widths[m[1]]
			}
		}
		if sum < 300 || sum > 1024-2*16-120 {
			t.Errorf("the columns take %d px: %s", sum, group)
		}
	}
	if strings.Contains(pageStyle, "min-width: 1") {
		t.Error("a table has a least width")
	}
	for row := range strings.SplitSeq(html, `<tr class="first">`) {
		row, _, _ = strings.Cut(row, "</tr>")
		for _, cell := range regexp.MustCompile(`<td[^>]*>(<span class="pill)?`).FindAllStringSubmatch(row, -1) {
			if cell[1] == "" && !strings.Contains(cell[0], "data-label=") {
				t.Errorf("%s has no label in %s", cell[0], row)
			}
		}
	}
}

func TestPageEscapes(t *testing.T) {
	const evil = `<script>alert(1)</script>"'`
	s := sample()
	s.Version, s.Config, s.State = evil, evil, evil
	s.Services[0].Name, s.Services[0].Listen, s.Services[0].State = evil, []string{evil}, evil
	s.Services[0].Outcomes = map[string]uint64{evil: 1}
	s.Services[0].Protocol, s.Services[0].Refused = evil, map[string]uint64{evil: 1}
	s.Services[0].TLS.Certificates[0] = Certificate{Path: evil, Names: []string{evil}, KeyType: evil}
	s.Services[2].UDP.Dropped = map[string]uint64{evil: 1}
	b := &s.Pools[0].Backends[2]
	b.Name, b.Address, b.Reason, b.State = evil, evil, evil, evil
	b.Check.Type, b.Check.Reason = evil, evil
	html := render(t, "/", s)
	wellFormed(t, html)
	if strings.Contains(html, "<script") {
		t.Error(html)
	}
}
