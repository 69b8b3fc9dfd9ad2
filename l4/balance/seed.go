package balance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// SeedOf makes a Spec's Seed of the secret that the boxes of a pair share, so that they
// choose alike and a stranger cannot work out where an address leads; 0 of "". The secret
// cannot be told from it.
func SeedOf(secret string) uint64 {
	if secret == "" {
		return 0
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("poise: hash of clients"))
	return binary.BigEndian.Uint64(mac.Sum(nil))
}
