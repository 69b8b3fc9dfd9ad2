package tlsio_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"strings"
	"testing"
)

// A writer seals records of TLS 1.3 (RFC 8446 section 5.2) in the place of a client
// of crypto/tls, which has no way to update its keys.
type writer struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// takeOver has a client shake hands over peer, and returns it to be read from, and a
// writer in the place of its own.
func takeOver(t *testing.T, peer net.Conn) (*tls.Conn, *writer) {
	t.Helper()
	var log bytes.Buffer
	config := clientConfig()
	config.KeyLogWriter, config.MinVersion = &log, tls.VersionTLS13
	e := tls.Client(peer, config)
	if err := e.Handshake(); err != nil {
		t.Fatal(err)
	}
	if e.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		const why = "without AES in hardware another cipher is chosen than the one this test knows"
		if os.Getenv("POISE_TEST_ALL") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	for line := range strings.Lines(log.String()) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			w := &writer{}
			w.use(must(hex.DecodeString(f[2])))
			return e, w
		}
	}
	t.Fatal("the client logs no secret")
	return nil, nil
}

func (w *writer) use(secret []byte) {
	w.secret, w.seq = secret, 0
	w.aead = must(cipher.NewGCM(must(aes.NewCipher(expand(secret, "key", 16)))))
	w.iv = expand(secret, "iv", 12)
}

// expand is HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
func expand(secret []byte, label string, size int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(size))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(append(info, "tls13 "+label...), 0)
	return must(hkdf.Expand(sha256.New, secret, string(info), size))
}

// record seals one record of a type.
func (w *writer) record(typ byte, payload []byte) []byte {
	inner := append(bytes.Clone(payload), typ)
	head := []byte{23, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(inner)+w.aead.Overhead()))
	nonce := bytes.Clone(w.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(w.seq >> (56 - 8*i))
	}
	w.seq++
	return w.aead.Seal(head, nonce, inner, head)
}

const (
	typeAlert     = 21
	typeHandshake = 22
	typeData      = 23
)

// update is a KeyUpdate that asks for one in return; what follows has the new key.
func (w *writer) update() []byte {
	b := w.record(typeHandshake, []byte{24, 0, 0, 1, 1})
	w.use(expand(w.secret, "traffic upd", 32))
	return b
}

func (w *writer) data(s string) []byte { return w.record(typeData, []byte(s)) }

// closeNotify is the alert of that name.
func (w *writer) closeNotify() []byte { return w.record(typeAlert, []byte{1, 0}) }
