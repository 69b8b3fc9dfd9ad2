package cert

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/poise-lb/poise/l4"
)

// What stands in logs and headers is not for strangers to choose freely.
func TestDescribeNames(t *testing.T) {
	for name, want := range map[string]string{
		"":                           "",
		"Shop.Example.TEST":          "shop.example.test",
		"_sip._tcp.a-b.xn--nda.test": "_sip._tcp.a-b.xn--nda.test",
		"a b":                        "",
		"a\nb":                       "",
		"a\x00b":                     "",
		`a"b`:                        "",
		`a\b`:                        "",
		"ä.test":                     "",
		"\xff":                       "",
		strings.Repeat("a", 253):     strings.Repeat("a", 253),
		strings.Repeat("a", 254):     "",
	} {
		got := Describe(tls.ConnectionState{Version: tls.VersionTLS12, CipherSuite: tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, ServerName: name, NegotiatedProtocol: "h2"})
		if diff := cmp.Diff(&l4.TLS{Version: "TLSv1.2", Cipher: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", ServerName: want, ALPN: "h2"}, got); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", name, diff)
		}
	}
}
