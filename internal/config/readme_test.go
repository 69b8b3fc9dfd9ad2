package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/config"
)

// What these documents show can be used as it is.
func TestDocumentsConfigurations(t *testing.T) {
	t.Setenv("POISE_PG_PASSWORD", "secret")
	for _, name := range []string{"README.md", "docs/install.md", "docs/migrating.md"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(text), "```yaml\n")
		if len(parts) < 2 {
			t.Fatalf("%s shows no configuration", name)
		}
		for _, part := range parts[1:] {
			example, _, ended := strings.Cut(part, "```")
			if !ended {
				t.Fatalf("a configuration in %s does not end", name)
			}
			if _, err := config.Parse(name, []byte(example)); err != nil {
				t.Errorf("%v\nin:\n%s", err, example)
			}
		}
	}
}
