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
	_, rest, found := strings.Cut(string(text), "```yaml\n")
	example, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("the README shows no configuration")
	}
	t.Setenv("POISE_PG_PASSWORD", "secret")
	if _, err := config.Parse("README.md", []byte(example)); err != nil {
		t.Error(err)
	}
}
