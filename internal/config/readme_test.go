package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/config"
)

// What the README shows can be used as it is.
func TestReadmeConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("POISE_PG_PASSWORD", "secret")
	parts := strings.Split(string(text), "```yaml\n")
	if len(parts) < 2 {
		t.Fatal("the README shows no configuration")
	}
	for _, part := range parts[1:] {
		example, _, ended := strings.Cut(part, "```")
		if !ended {
			t.Fatal("a configuration in the README does not end")
		}
		if _, err := config.Parse("README.md", []byte(example)); err != nil {
			t.Errorf("%v\nin:\n%s", err, example)
		}
	}
}
