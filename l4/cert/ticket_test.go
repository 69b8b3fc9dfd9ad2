package cert

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// resumer is a client that remembers its session.
func resumer(ca *authority, version uint16) *tls.Config {
	return &tls.Config{ServerName: "a.test", RootCAs: ca.pool(), MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
}

var versions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

// Own keys: for as long as the store and its successors live, and two rotations.
func TestOwnTicketKeys(t *testing.T) {
	ca, dir := newAuthority("ca"), t.TempDir()
	spec := Spec{Certificates: []Pair{pairIn(t, dir, "a", ca.issue(ecKey(), nil, "a.test"), ecKey())}}
	for _, version := range versions {
		s := load(t, spec, nil)
		start := s.rotated
		client := resumer(ca, version)
		resumes := func(what string, s *Store, client *tls.Config, want bool) {
			t.Helper()
			if got := shake(t, s.Config(), client).server.DidResume; got != want {
				t.Errorf("%x, %s: resumed %v, want %v", version, what, got, want)
			}
		}
		resumes("first", s, client, false)
		resumes("second", s, client, true)

		// A reload makes another store, maybe of other files.
		s = load(t, spec, s)
		resumes("after a reload", s, client, true)
		replace(t, spec.Certificates[0].Cert, ca.issue(ecKey(), nil, "a.test"))
		if changed, err := s.Refresh(); err != nil || len(changed) != 1 {
			t.Fatalf("got %v, %v", changed, err)
		}
		resumes("after another certificate", s, client, true)
		resumes("elsewhere", load(t, spec, nil), client, false)

		// What was encrypted with a key is known for three times its term of office.
		old := resumer(ca, version)
		resumes("a new client", s, old, false)
		kept := keep(old)
		for i, want := range []bool{true, true, true, false} {
			at := start.Add(time.Duration(i) * rotateEvery)
			s.now = func() time.Time { return at }
			if _, err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
			if n := len(s.own); n != min(i+1, ownKeys) {
				t.Errorf("after %d terms there are %d keys", i, n)
			}
			resumes("later", s, kept(), want)
		}
	}
}

// keep makes clients that have the session of this one, and forget what they get.
func keep(c *tls.Config) func() *tls.Config {
	state, _ := c.ClientSessionCache.Get(c.ServerName)
	return func() *tls.Config {
		again := c.Clone()
		again.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		again.ClientSessionCache.Put(c.ServerName, state)
		return again
	}
}

// A pair of balancers with the same file resumes each other's sessions.
func TestSharedTicketKeys(t *testing.T) {
	ca := newAuthority("ca")
	keys := []string{strings.Repeat("a1", 32), base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 48)), strings.Repeat("C3", 40)}
	var stores [2]*Store
	var files [2]string
	crt := ca.issue(ecKey(), nil, "a.test")
	spec := func(i int) Spec {
		dir := t.TempDir()
		files[i] = write(t, filepath.Join(dir, "tickets"), []byte("# shared\n"+keys[0]+"\n"))
		return Spec{Certificates: []Pair{pairIn(t, dir, "a", crt, ecKey())}, TicketKeys: files[i]}
	}
	specs := [2]Spec{spec(0), spec(1)}
	for i := range stores {
		stores[i] = load(t, specs[i], nil)
	}
	put := func(i int, content string) {
		t.Helper()
		replace(t, files[i], []byte(content))
		if changed, err := stores[i].Refresh(); err != nil || !slices.Equal(changed, files[i:i+1]) {
			t.Fatalf("got %v, %v", changed, err)
		}
	}
	for _, version := range versions {
		put(0, keys[0]+"\r\n\r\n")
		put(1, keys[0])
		client := resumer(ca, version)
		resumes := func(what string, i int, want bool) {
			t.Helper()
			if got := shake(t, stores[i].Config(), client).server.DidResume; got != want {
				t.Errorf("%x, %s: resumed %v, want %v", version, what, got, want)
			}
		}
		resumes("first", 0, false)
		resumes("at the other", 1, true)
		resumes("and back", 0, true)

		// A new key becomes known to both before either uses it.
		put(0, keys[0]+"\n"+keys[1]+"\n")
		resumes("new key in waiting", 1, true)
		put(1, keys[1]+"\n"+keys[0]+"\n")
		resumes("ticket of the old key", 1, true)
		resumes("ticket of the new key", 0, true) // which gives one of the old key
		resumes("ticket of the old key", 1, true)
		put(0, keys[1]+"\n"+keys[2])
		put(1, keys[1]+"\n")
		resumes("old key is gone", 0, true)
		put(1, keys[2])
		resumes("nothing in common", 1, false)

		// A broken file is no reason to forget sessions.
		write(t, files[1], []byte("nonsense!"))
		if _, err := stores[1].Refresh(); err == nil || !strings.HasPrefix(err.Error(), "tls.ticket_keys: file "+files[1]+": line 1: ") {
			t.Errorf("got %v", err)
		}
		resumes("broken file", 1, true)
		remove(t, files[1])
		if _, err := stores[1].Refresh(); err == nil {
			t.Error("nothing is said of a file that is gone")
		}
		resumes("no file", 1, true)
		resumes("what the other one's first key made is decrypted", 0, true)
		write(t, files[1], nil)
	}
}

func TestTicketKeysAreNotLogged(t *testing.T) {
	secret := hex.EncodeToString(bytes.Repeat([]byte{0xab}, 20))
	for _, line := range []string{secret, secret + " x", "!" + secret} {
		if _, err := parseTicketKey(line); err == nil || strings.Contains(err.Error(), "abab") {
			t.Errorf("%s: got %v", line, err)
		}
	}
}

func FuzzTicketKey(f *testing.F) {
	f.Add(strings.Repeat("ab", 32))
	f.Add(base64.StdEncoding.EncodeToString(make([]byte, 48)))
	f.Add("ab")
	f.Fuzz(func(t *testing.T, line string) {
		key, err := parseTicketKey(line)
		if err == nil && (len(key) < minTicketKey || len(key) > maxTicketKey) {
			t.Errorf("a key of %d bytes is taken", len(key))
		}
		if len(key) >= minTicketKey && len(key) <= maxTicketKey {
			for _, again := range []string{hex.EncodeToString(key), base64.RawStdEncoding.EncodeToString(key)} {
				if _, err := hex.DecodeString(again); err == nil && len(again) != 2*len(key) {
					continue // by a chance of one in 10^19 at the least
				}
				if k, err := parseTicketKey(again); err != nil || !bytes.Equal(k, key) {
					t.Errorf("%q: got %x, %v, want %x", again, k, err, key)
				}
			}
		}
	})
}
