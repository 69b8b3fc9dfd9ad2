package notice_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/poise-lb/poise/l4/notice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One a second of each gate, with the number of those left out.
func TestPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := notice.NewWriter(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
		full := notice.Kind{Text: "it is full", Key: "pool"}
		var web, other notice.Gate
		for range 5 {
			w.Post(&web, full, "web", "a")
		}
		w.Post(&other, full, "other", "")
		time.Sleep(time.Second)
		w.Post(&web, full, "web", "b")
		w.Close()
		want := []string{
			`level=WARN msg="it is full" service=web pool=a`,
			`level=WARN msg="it is full" service=other`,
			`level=WARN msg="it is full" service=web pool=b more_since_last=4`,
		}
		if got := strings.TrimSpace(out.String()); got != strings.Join(want, "\n") {
			t.Errorf("got:\n%s", got)
		}
	})
}

// A log that is stuck holds nobody up.
func TestStuckLog(t *testing.T) {
	free := make(chan struct{})
	w := notice.NewWriter(slog.New(slog.NewTextHandler(stuck(free), nil)))
	for range 1000 {
		w.Post(new(notice.Gate), notice.Kind{Text: "again"}, "web", "")
	}
	close(free)
	w.Close()
}

type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}
