package config

import "github.com/poise-lb/poise/health"

// A secret that can be guessed by trying words is as good as none, because one look at
// where an address leads proves a guess right. Nobody needs more than maxSecret.
const (
	minSecret = 16
	maxSecret = 256
)

// clusterSecret is the secret that boxes of a pair share. No message repeats it.
func clusterSecret(dst *health.Secret) key {
	return key{name: "secret", typ: "text, or empty", def: `""`, read: func(v *value) {
		switch n := len(v.text); {
		case !v.scalar(`"${POISE_SECRET}"`):
		case n > 0 && n < minSecret:
			v.fail("is shorter than %d bytes and could be guessed; write a random one, such as openssl rand -hex 16 makes", minSecret)
		case n > maxSecret:
			v.fail("is longer than %d bytes; write a random one, such as openssl rand -hex 16 makes", maxSecret)
		default:
			*dst = health.Secret(v.text)
		}
	}, held: func() any { return *dst }}
}
