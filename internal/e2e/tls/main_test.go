package tls

import (
	"testing"

	"github.com/poise-lb/poise/internal/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
