package health

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The serialization protocol of Redis, version 2, as far as a probe needs it:
// https://redis.io/docs/latest/develop/reference/protocol-spec/

// respError is an error reply, such as "ERR unknown command".
type respError string

// Error is the reply.
func (e respError) Error() string { return string(e) }

// Limits of one reply. The longest that is asked for, INFO replication and ROLE of
// a master, have some 100 bytes a replica.
const (
	maxRESPBytes = 256 << 10
	maxRESPDepth = 4
)

// appendCommand writes a command as an array of bulk strings.
func appendCommand(b []byte, words ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(words))
	for _, word := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b
}

// respReader reads replies.
type respReader struct {
	*bufio.Reader
	limit *io.LimitedReader
}

func newRESPReader(r io.Reader) *respReader {
	limit := &io.LimitedReader{R: r, N: maxRESPBytes}
	return &respReader{bufio.NewReader(limit), limit}
}

// read returns one reply: a string, an int64, an []any of such, nil, or respError
// as an error. Any other error ends the conversation.
func (r *respReader) read() (any, error) {
	v, err := r.value(maxRESPDepth)
	if err != nil && r.limit.N <= 0 {
		return nil, failf(L7RSP, "a reply of more than %d bytes", maxRESPBytes)
	}
	return v, err
}

func (r *respReader) value(depth int) (any, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	switch kind, text := line[0], line[1:]; kind {
	case '+':
		return text, nil
	case '-':
		return nil, respError(text)
	case ':':
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, notRESP(line)
		}
		return n, nil
	case '$':
		n, err := strconv.Atoi(text)
		switch {
		case err == nil && n == -1:
			return nil, nil
		case err != nil || n < 0 || n > maxRESPBytes:
			return nil, notRESP(line)
		}
		bulk := make([]byte, n+2)
		if _, err := io.ReadFull(r, bulk); err != nil {
			return nil, err
		}
		if string(bulk[n:]) != "\r\n" {
			return nil, failf(L7RSP, "a bulk string longer than announced")
		}
		return string(bulk[:n]), nil
	case '*':
		n, err := strconv.Atoi(text)
		switch {
		case err == nil && n == -1:
			return nil, nil
		case err != nil || n < 0 || n > maxRESPBytes || depth == 0:
			return nil, notRESP(line)
		}
		var items []any // grows with what comes, not with what is announced
		for range n {
			item, err := r.value(depth - 1)
			if refusal := respError(""); errors.As(err, &refusal) {
				item = refusal
			} else if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		return items, nil
	}
	return nil, notRESP(line)
}

// line reads up to CR LF, which it leaves out. The line is not empty.
func (r *respReader) line() (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", failf(L7RSP, "a line of more than %d bytes", len(line))
	case err != nil && len(line) > 0 && !plausible(line[0]):
		return "", notRESP(string(line)) // whatever follows
	case err != nil:
		return "", err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return "", notRESP(string(line))
	}
	return string(line[:len(line)-2]), nil
}

// plausible reports whether a reply can begin so.
func plausible(kind byte) bool {
	switch kind {
	case '+', '-', ':', '$', '*':
		return true
	}
	return false
}

func notRESP(line string) error {
	return failf(L7RSP, "not a Redis reply: %q", line[:min(len(line), 40)])
}
