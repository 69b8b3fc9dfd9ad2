package demo

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/loadgen"
)

// Each algorithm's configuration is one the daemon takes.
func TestDemoConfigurations(t *testing.T) {
	for name := range evenly {
		s, err := setStage(name, fullCycle)
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Parse("demo.yaml", []byte(s.config))
		s.clear()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := f.Pools[0].Balance; got.Algorithm != name || len(got.Backends) != 3 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDemoFailsWithAClient(t *testing.T) {
	var out bytes.Buffer
	err := perform(t.Context(), &out, Options{Balance: "round-robin", Duration: time.Second}, []scene{{
		caption: "db1 resets everybody", share: 1,
		act: func(victim *loadgen.Backend) error {
			victim.Behave(loadgen.Behaviour{Reset: true})
			return nil
		},
	}})
	if err == nil || !strings.HasSuffix(err.Error(), " client connections failed") {
		t.Errorf("error %v, want failed connections\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "\nreset: ") && !strings.Contains(out.String(), "\nclosed: ") {
		t.Errorf("the summary does not say what failed:\n%s", &out)
	}
}

func TestDemoSaysWhatWentWrong(t *testing.T) {
	want := errors.New("the stage fell down")
	err := perform(t.Context(), io.Discard, Options{Balance: "p2c", Duration: time.Second}, []scene{{
		share: 1, act: func(*loadgen.Backend) error { return want },
	}})
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// The daemon of the demonstration does not start where something else listens,
// and says so.
func TestDemoDaemonThatCannotStart(t *testing.T) {
	s, err := setStage("p2c", fullCycle)
	if err != nil {
		t.Fatal(err)
	}
	defer s.clear()
	ln, err := net.Listen("tcp", s.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d, err := startDaemon(t.Context(), s.config, "test")
	if err == nil {
		t.Fatal("it started all the same: ", d.stop())
	}
	if !strings.Contains(err.Error(), s.listen) {
		t.Errorf("the error does not name %s: %v", s.listen, err)
	}
}
