package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
)

type spoken struct{}

func (spoken) LogValue() slog.Value { return slog.DurationValue(90 * time.Second) }

// The JSON form says of every kind of attribute what the text form says, in types
// of its own only where JSON has them.
func TestJSONSaysWhatTextSays(t *testing.T) {
	attrs := []any{
		slog.String("string", "a b"), slog.Int("int", -3), slog.Uint64("uint", 7), slog.Float64("float", 1.5), slog.Bool("bool", true),
		slog.Duration("duration", 8*time.Second), slog.Group("group", "drain", 2*time.Minute, "outcome", l4.Killed),
		slog.Any("valuer", spoken{}), slog.Any("outcome", l4.Killed), slog.Any("reason", health.Reason("L4CON")),
		slog.Any("error", errors.New("it failed")), slog.Any("address", netip.MustParseAddrPort("[::1]:80")),
		slog.Any("state", l4.ConnectRefused), slog.Any("nothing", nil),
	}
	say := func(format string) string {
		var out bytes.Buffer
		l := newLogging(&out)
		l.set(config.Log{Format: format})
		l.logger().With(slog.Duration("with", time.Hour)).Info("message", attrs...)
		l.close()
		return out.String()
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(say("json")), &object); err != nil {
		t.Fatal(err)
	}
	group := object["group"].(map[string]any)
	delete(object, "group")
	for k, v := range group {
		object["group."+k] = v
	}
	text := say("text")
	for key, want := range map[string]any{
		"with": "1h0m0s", "string": "a b", "int": -3.0, "uint": 7.0, "float": 1.5, "bool": true,
		"duration": "8s", "group.drain": "2m0s", "group.outcome": "killed",
		"valuer": "1m30s", "outcome": "killed", "reason": "L4CON", "error": "it failed", "address": "[::1]:80",
		"state": l4.ConnectRefused.String(), "nothing": nil,
	} {
		if object[key] != want {
			t.Errorf("%s: %v, not %v", key, object[key], want)
		}
		if s, ok := want.(string); ok && !strings.Contains(text, key+"="+s) && !strings.Contains(text, key+`="`+s+`"`) {
			t.Errorf("the text form says something else about %s than %q: %s", key, s, text)
		}
	}
}
