package reload

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

// What a variable holds is in nothing that is printed: not in what a reload says it
// changes, nor in the log or what --explain says.
func TestVariablesAreNotTold(t *testing.T) {
	const secret = "zq7xkw9jvb"
	t.Setenv("POISE_TEST_SECRET", secret)
	text := func(more string) string {
		return "services: {web: {listen: [\"" + rig.Addr(t) + "\"], pool: web}}\npools: {web: {backends: [\"127.0.0.1:9\"], check: {type: http" + more + "}}}\n"
	}
	p := rig.Start(t, text(""), func(c *exec.Cmd) { c.Env = append(c.Environ(), "POISE_TEST_SECRET="+secret) })
	said := strings.Join(p.MustReload(t, text(`, http: {path: "/${POISE_TEST_SECRET}", expect_body: "${POISE_TEST_SECRET}", host: "${POISE_TEST_SECRET}"}`)), "\n")
	if !strings.Contains(said, "check.http.path /health -> /${POISE_TEST_SECRET}") {
		t.Errorf("the reload says\n%s", said)
	}
	path := rig.WriteFile(t, "services: {web: {listen: [\":1\"], pool: web}}\npools: {web: {backends: [\"unix:/${POISE_TEST_SECRET}\"], check: {type: none}, backends_file: \"/${POISE_TEST_SECRET}\", tls: {server_name: \"${POISE_TEST_SECRET}\"}}}\n")
	stdout, stderr, code := rig.CLI(t, "check", "--explain", "-c", path)
	if code != 0 || !strings.Contains(stdout, "named ${POISE_TEST_SECRET}") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	for what, text := range map[string]string{"reload": said, "log": p.Stderr(), "explain": stdout + stderr} {
		if strings.Contains(text, secret) {
			t.Errorf("%s:\n%s", what, text)
		}
	}
	if os.Getenv("POISE_TEST_SECRET") != secret {
		t.Error("the secret was not in the environment")
	}
}
