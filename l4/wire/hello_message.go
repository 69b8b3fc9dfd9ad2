package wire

// Extensions of a ClientHello.
const (
	extServerName = 0  // RFC 6066, section 3
	extALPN       = 16 // RFC 7301, section 3.1
)

// nameTypeHost is the only type of server name there is.
const nameTypeHost = 0

// maxHostName bounds a host name in text, in bytes (RFC 1035, section 2.3.4: 255 on
// the wire, where each label has a length and the last is empty).
const maxHostName = 253

// hello is what is of interest in a ClientHello. Its strings are copies.
type hello struct {
	name string
	alpn string // the list as it came: each name behind a byte of length
}

// ServerName returns the host name that the client asks for, in lower case and
// without the dot at its end that some clients send. It is "" if the client sent none
// or an IP address, which is not allowed there (RFC 6066, section 3). It consists of
// letters, digits, '-', '_' and '.', has no empty labels and at most 253 bytes; Next
// refuses any other name. It is valid once Next is done, as are the others.
func (h *hello) ServerName() string { return h.name }

// ALPN returns the application protocols that the client offers, the one it likes
// best first; nil if it offers none.
func (h *hello) ALPN() []string {
	var list []string
	for rest := h.alpn; rest != ""; {
		n := 1 + int(rest[0])
		list = append(list, rest[1:n])
		rest = rest[n:]
	}
	return list
}

// HasALPN says whether the client offers an application protocol. It allocates
// nothing.
func (h *hello) HasALPN(proto string) bool {
	for rest := h.alpn; rest != ""; {
		n := 1 + int(rest[0])
		if rest[1:n] == proto {
			return true
		}
		rest = rest[n:]
	}
	return false
}

// parse reads the message without its header (RFC 8446, section 4.1.2).
func (h *hello) parse(message []byte) error {
	m := cursor(message)
	_, ok := m.take(2 + 32) // version and random
	_, ok1 := m.vector(1)   // session id
	_, ok2 := m.vector(2)   // cipher suites
	_, ok3 := m.vector(1)   // compression methods
	if !ok || !ok1 || !ok2 || !ok3 {
		return errHelloFraming
	}
	if len(m) == 0 {
		return nil // from before there were extensions
	}
	extensions, ok := m.vector(2)
	if !ok || len(m) > 0 {
		return errHelloFraming
	}
	var named, listed bool
	for len(extensions) > 0 {
		typ, ok := extensions.uint(2)
		data, ok1 := extensions.vector(2)
		if !ok || !ok1 {
			return errHelloFraming
		}
		var err error
		switch typ {
		// One that occurs twice (which RFC 8446, section 4.2 forbids) could be read
		// in one way here and in another way by the server.
		case extServerName:
			if named {
				return errHelloRepeated
			}
			named, err = true, h.parseServerName(data)
		case extALPN:
			if listed {
				return errHelloRepeated
			}
			listed, err = true, h.parseALPN(data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *hello) parseServerName(data cursor) error {
	list, ok := data.vector(2)
	if !ok || len(data) > 0 || len(list) == 0 {
		return errHelloName
	}
	found := false
	for len(list) > 0 {
		typ, ok := list.uint(1)
		name, ok1 := list.vector(2)
		if !ok || !ok1 || len(name) == 0 {
			return errHelloName
		}
		if typ != nameTypeHost {
			continue
		}
		if found { // one name of each type
			return errHelloName
		}
		found = true
		if h.name, ok = hostName(name); !ok {
			return errHelloName
		}
	}
	return nil
}

// hostName returns a host name in lower case and without the dot at its end, "" if it
// is an IP address.
func hostName(b []byte) (string, bool) {
	if b[len(b)-1] == '.' {
		b = b[:len(b)-1]
	}
	if len(b) == 0 || len(b) > maxHostName {
		return "", false
	}
	if _, ok := parseIPv4(b); ok {
		return "", true
	}
	if _, ok := parseIPv6(b); ok {
		return "", true
	}
	var lower [maxHostName]byte
	last := byte('.') // as if a label had ended before the first
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '.' && last != '.':
		default:
			return "", false
		}
		lower[i], last = c, c
	}
	return string(lower[:len(b)]), last != '.'
}

func (h *hello) parseALPN(data cursor) error {
	list, ok := data.vector(2)
	if !ok || len(data) > 0 || len(list) == 0 {
		return errHelloALPN
	}
	for rest := list; len(rest) > 0; {
		if name, ok := rest.vector(1); !ok || len(name) == 0 {
			return errHelloALPN
		}
	}
	h.alpn = string(list)
	return nil
}

// cursor is what has not been read yet of some bytes. Its methods return false, and
// read nothing of use, if there are too few.
type cursor []byte

func (c *cursor) take(n int) (cursor, bool) {
	if len(*c) < n {
		return nil, false
	}
	head := (*c)[:n]
	*c = (*c)[n:]
	return head, true
}

// uint reads a number of n bytes.
func (c *cursor) uint(n int) (int, bool) {
	b, ok := c.take(n)
	v := 0
	for _, x := range b {
		v = v<<8 | int(x)
	}
	return v, ok
}

// vector reads a length of n bytes and as many bytes as that says.
func (c *cursor) vector(n int) (cursor, bool) {
	length, ok := c.uint(n)
	if !ok {
		return nil, false
	}
	return c.take(length)
}
