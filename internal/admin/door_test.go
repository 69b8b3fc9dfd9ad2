package admin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// crowd starts both servers with so few places and returns how to connect to each,
// and how many connections are counted as open.
func crowd(t *testing.T, d Daemon, places int, metrics http.HandlerFunc) (doors map[string]func() net.Conn, open *atomic.Int64) {
	t.Helper()
	open = new(atomic.Int64)
	r := Room{Places: func() int { return places }, Count: func(n int) { open.Add(int64(n)) }}
	dir := t.TempDir()
	ctl, err := ListenSocket(dir+"/s", d, r, quiet())
	if err != nil {
		t.Fatal(err)
	}
	web, err := ListenHTTP("127.0.0.1:0", d, metrics, r, quiet())
	if err != nil {
		t.Fatal(err)
	}
	doors = map[string]func() net.Conn{}
	for name, s := range map[string]*Server{"socket": ctl, "http": web} {
		t.Cleanup(func() {
			s.Close()
			if n := open.Load(); n < 0 {
				t.Errorf("%d connections are open", n)
			}
		})
		doors[name] = func() net.Conn {
			c, err := net.Dial(s.Addr().Network(), s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
	}
	return doors, open
}

// get asks for a path and returns the whole answer, "" if there was none.
func get(c net.Conn, path string) string {
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path)
	b, _ := io.ReadAll(c)
	return string(b)
}

// anew is a fake whose every status is its own, as a daemon's is: several are made and
// completed at once.
type anew struct{ *fake }

func (anew) Status() Status { return sample() }

// idlers are what clients do that keep a place without end.
var idlers = map[string]string{
	"silent":             "",
	"half a request":     "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
	"half a body":        "POST /v1/backends/pg/db1/state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	"idle after one":     "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"reading no answers": strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
}

// TestIdleClientsGiveWay: clients that do nothing, of whatever kind, keep none out, and
// their number is bounded.
func TestIdleClientsGiveWay(t *testing.T) {
	const places = 8
	doors, open := crowd(t, anew{&fake{}}, places, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "m 1\n") })
	for name, dial := range doors {
		for kind, text := range idlers {
			for range 5 * places {
				c := dial()
				go io.WriteString(c, text) // some of it is never read
			}
			for _, path := range []string{"/livez", "/readyz", "/v1/status"} {
				if a := get(dial(), path); !strings.HasPrefix(a, "HTTP/1.1 200 ") {
					t.Errorf("%s, %s: %s is answered %.80q", name, kind, path, a)
				}
			}
			if n := open.Load(); n > 2*places {
				t.Errorf("%s, %s: %d connections are open", name, kind, n)
			}
		}
	}
	if a := get(doors["http"](), "/metrics"); !strings.Contains(a, "m 1\n") {
		t.Errorf("/metrics is answered %.80q", a)
	}
}

// TestServedClientsStay: one whose answer is being made does not give way.
func TestServedClientsStay(t *testing.T) {
	d := &fake{hang: make(chan struct{}), entered: make(chan struct{}, 1)}
	doors, _ := crowd(t, d, 4, http.NotFound)
	c := doors["socket"]()
	fmt.Fprint(c, "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	<-d.entered
	for range 50 {
		doors["socket"]()
	}
	if a := get(doors["socket"](), "/livez"); !strings.HasPrefix(a, "HTTP/1.1 200 ") {
		t.Errorf("/livez is answered %.80q", a)
	}
	close(d.hang)
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "422") {
		t.Errorf("the reload is answered %q, %v", line, err)
	}
}

// TestScrapesTakeTurns: scrapes at the same time are all answered, few at once, and
// probes do not wait for them.
func TestScrapesTakeTurns(t *testing.T) {
	var now, most atomic.Int64
	entered, release := make(chan struct{}, 100), make(chan struct{})
	doors, _ := crowd(t, &fake{}, 64, func(w http.ResponseWriter, _ *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		entered <- struct{}{}
		<-release
		io.WriteString(w, "m 1\n")
	})
	const scrapes = 20
	answers := make(chan string, scrapes)
	for range scrapes {
		c := doors["http"]()
		go func() { answers <- get(c, "/metrics") }()
	}
	for range turnsAtOnce {
		<-entered
	}
	if a := get(doors["http"](), "/livez"); !strings.HasPrefix(a, "HTTP/1.1 200 ") {
		t.Errorf("/livez is answered %.80q while scrapes hang", a)
	}
	close(release)
	for range scrapes {
		if a := <-answers; !strings.HasPrefix(a, "HTTP/1.1 200 ") {
			t.Errorf("a scrape is answered %.80q", a)
		}
	}
	if n := most.Load(); n > turnsAtOnce {
		t.Errorf("%d at once", n)
	}
}

// TestUnreadAnswersAreBounded: answers that are not read give way to others before
// they take up more memory than they may.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const size = 12 << 20 // more than the buffers of the kernel take
	doors, open := crowd(t, &fake{}, 64, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) })
	var held []net.Conn
	for range 6 {
		c := doors["http"]()
		held = append(held, c)
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is being written
			t.Fatal(err)
		}
	}
	if n := open.Load(); n > mostAnswers/size {
		t.Errorf("%d answers of %d bytes are kept", n, size)
	}
	if b, err := io.ReadAll(io.LimitReader(held[len(held)-1], size)); err != nil || len(b) != size {
		t.Errorf("the last client got %d bytes, %v", len(b), err)
	}
}

// TestSlowClientsAreClosed: those who do not finish what they began have a limit of
// time too.
func TestSlowClientsAreClosed(t *testing.T) {
	doors, open := crowd(t, &fake{}, 8, http.NotFound)
	c := doors["http"]()
	io.WriteString(c, idlers["half a request"])
	c.SetReadDeadline(time.Now().Add(6 * headerTimeout))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	for open.Load() != 0 { // a moment after it is closed
		time.Sleep(time.Millisecond)
	}
}
