package wire

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
	"pgregory.net/rapid"
)

// readOther reads a header with another implementation.
func readOther(b []byte) (*proxyproto.Header, error) {
	return proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), MaxProxyHeader))
}

// addrPortOther converts an address of the other implementation.
func addrPortOther(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return unmapped(a.AddrPort())
	case *net.UDPAddr:
		return unmapped(a.AddrPort())
	}
	return netip.AddrPort{}
}

// sameAsOther compares a header that both have accepted.
func sameAsOther(t interface{ Errorf(string, ...any) }, b []byte, h ProxyHeader, other *proxyproto.Header) {
	if h.Version != other.Version {
		t.Errorf("%.200q: version %d, the other says %d", b, h.Version, other.Version)
	}
	if h.Local {
		return
	}
	if src, dst := addrPortOther(other.SourceAddr), addrPortOther(other.DestinationAddr); h.Source != src || h.Destination != dst {
		t.Errorf("%.200q: %v to %v, the other says %v to %v", b, h.Source, h.Destination, src, dst)
	}
	if h.Datagram != other.TransportProtocol.IsDatagram() {
		t.Errorf("%.200q: datagram %v, the other says %v", b, h.Datagram, other.TransportProtocol)
	}
	tlvs, err := other.TLVs()
	if err != nil {
		t.Errorf("%.200q: fields accepted, the other says %v", b, err)
	}
	rest := h.TLVs
	for _, o := range tlvs {
		typ, value, tail, ok := cutTLV(rest)
		// The other leaves out the value of a NOOP.
		if !ok || typ != byte(o.Type) || typ != TLVNoop && !bytes.Equal(value, o.Value) {
			t.Errorf("%.200q: field %#x %.200q, the other says %#x %.200q", b, typ, value, o.Type, o.Value)
			return
		}
		rest = tail
	}
}

// What we write, another implementation reads the same.
func TestProxyAppendAgainstOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawProxyV2(t)
		if !h.Source.IsValid() || !h.Destination.IsValid() {
			t.Skip("the other refuses unspecified families")
		}
		b := h.Append(nil)
		if rapid.Bool().Draw(t, "version 1") {
			b = AppendProxyV1(nil, h.Source, h.Destination)
		}
		other, err := readOther(b)
		if err != nil {
			t.Fatalf("%.200q: %v", b, err)
		}
		p := ProxyParser{Accept: AcceptAny}
		if n, err := p.Next(b); n != len(b) || err != nil {
			t.Fatalf("%.200q: %d, %v", b, n, err)
		}
		sameAsOther(t, b, p.Header(), other)
		tlvs, err := other.TLVs()
		if err != nil || h.SSL == nil || other.Version == 1 {
			return
		}
		ssl, ok := tlvparse.FindSSL(tlvs)
		version, _ := ssl.SSLVersion()
		cipher, _ := ssl.SSLCipher()
		name, _ := ssl.ClientCN()
		if !ok || !ssl.ClientSSL() || version != h.SSL.Version || cipher != h.SSL.Cipher || name != h.SSL.CommonName ||
			ssl.ClientCertConn() != h.SSL.ClientCert || ssl.ClientCertSess() != h.SSL.ClientCert ||
			ssl.Verified() != (h.SSL.ClientCert && h.SSL.Verified) {
			t.Fatalf("%+v, want %+v", ssl, h.SSL)
		}
	})
}

// What another implementation writes, we read.
func TestProxyParserAgainstOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src, dst := drawAddrPort(t, "source"), drawAddrPort(t, "destination")
		if !src.IsValid() || !dst.IsValid() || src.Addr().Unmap().Is4() != dst.Addr().Unmap().Is4() {
			t.Skip("nothing the other can write")
		}
		var from, to net.Addr = net.TCPAddrFromAddrPort(unmapped(src)), net.TCPAddrFromAddrPort(unmapped(dst))
		version := rapid.ByteRange(1, 2).Draw(t, "version")
		if version == 2 && rapid.Bool().Draw(t, "datagram") {
			from, to = net.UDPAddrFromAddrPort(unmapped(src)), net.UDPAddrFromAddrPort(unmapped(dst))
		}
		other := proxyproto.HeaderProxyFromAddrs(version, from, to)
		if version == 2 {
			if err := other.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("a.test")}}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := other.Format()
		if err != nil {
			t.Fatal(err)
		}
		h, n, err := feedProxy(AcceptAny, b, drawLengths(t, len(b)))
		if n != len(b) || err != nil || h.Local {
			t.Fatalf("%.200q: %d, %v, %+v", b, n, err, h)
		}
		sameAsOther(t, b, h, other)
	})
}
