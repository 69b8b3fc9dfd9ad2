package health

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// GRPC is what a grpc check asks for.
type GRPC struct {
	Service string // "" = the server as a whole
	Host    string // :authority; "" = the address that is probed
	TLS     bool   // as Spec.TLS says
}

// grpcProber calls Check of the service grpc.health.v1.Health (doc/health-checking.md
// of grpc/grpc). It is one unary call, of which the protocol (PROTOCOL-HTTP2.md there)
// and both messages are so small that they are made and read here.
type grpcProber struct {
	dialer
	spec GRPC
	tls  *shaker // nil = no TLS
}

var grpcCheck = Check{Word: "grpc", New: newGRPCProber, Fails: asking, TLS: func(s Spec) bool { return s.GRPC.TLS }}

func newGRPCProber(s Spec, network, address string) Prober {
	d := s.dialer(network, address)
	p := &grpcProber{dialer: d, spec: s.GRPC}
	if s.GRPC.TLS {
		p.tls = s.shaker(d)
	}
	return p
}

// Probe connects, calls and judges the status.
func (p *grpcProber) Probe(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer closePolitely(ctx, conn)
	stop := setDeadline(ctx, conn)
	defer stop()
	l := lend(conn)
	resp, bye, err := askHTTP2(ctx, l, p.tls, p.request(ctx))
	if err != nil {
		return err
	}
	err = judgeCall(resp)
	answered(ctx)
	bye()
	if err != nil {
		return http2Failure(l, err)
	}
	return nil
}

func (p *grpcProber) request(ctx context.Context) *http.Request {
	host, scheme := p.address, "http"
	if p.network == "unix" {
		host = "localhost"
	}
	if p.tls != nil {
		scheme = "https"
	}
	body := frame(encodeHealthCheckRequest(p.spec.Service))
	req := &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{Scheme: scheme, Host: host, Path: "/grpc.health.v1.Health/Check"},
		Host:   cmp.Or(p.spec.Host, host),
		Header: http.Header{
			"Content-Type": {"application/grpc"},
			"Te":           {"trailers"}, // without it some proxies drop the status
			"User-Agent":   {userAgent()},
		},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if t, ok := ctx.Deadline(); ok {
		left := max(time.Until(t).Milliseconds(), 1)
		req.Header.Set("Grpc-Timeout", strconv.FormatInt(min(left, 99_999_999), 10)+"m")
	}
	return req
}

// maxHealthMessage is far above the two bytes that the answer has.
const maxHealthMessage = 4 << 10

func judgeCall(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return failf(L7STS, "HTTP status %d, want 200", resp.StatusCode)
	}
	if typ := resp.Header.Get("Content-Type"); !strings.HasPrefix(typ, "application/grpc") {
		return failf(L7RSP, "content type %s, want application/grpc", excerpt([]byte(typ)))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthMessage+1))
	if err != nil {
		return err
	}
	if len(body) > maxHealthMessage {
		return failf(L7RSP, "a message of more than %d bytes", maxHealthMessage)
	}
	if err := judgeStatus(resp); err != nil {
		return err
	}
	message, err := unframe(body)
	if err != nil {
		return &Failure{L7RSP, err}
	}
	status, err := decodeHealthCheckResponse(message)
	if err != nil {
		return &Failure{L7RSP, err}
	}
	if status != serving {
		return failf(L7STS, "%s, want SERVING", servingStatus(status))
	}
	return nil
}

// judgeStatus looks at how the call went: in the trailers, or in the header of an
// answer that has nothing else.
func judgeStatus(resp *http.Response) error {
	from := resp.Trailer
	if from.Get("Grpc-Status") == "" {
		from = resp.Header
	}
	code, err := strconv.ParseUint(from.Get("Grpc-Status"), 10, 16)
	if err != nil {
		return failf(L7RSP, "no gRPC status")
	}
	if code == 0 {
		return nil
	}
	message, err := url.PathUnescape(from.Get("Grpc-Message"))
	if err != nil {
		message = from.Get("Grpc-Message")
	}
	name := "gRPC status " + strconv.FormatUint(code, 10)
	if n, ok := grpcCodes[code]; ok {
		name += " (" + n + ")"
	}
	if message = oneLine(message); message != "" {
		name += ": " + message
	}
	return &Failure{L7STS, errors.New(name)}
}

// grpcCodes names those that a health check meets.
var grpcCodes = map[uint64]string{
	4: "deadline exceeded", 5: "no such service", 7: "permission denied", 8: "resource exhausted",
	12: "no health service", 13: "internal", 14: "unavailable", 16: "unauthenticated",
}

// frame puts the prefix before a message: not compressed, its length.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

func unframe(b []byte) ([]byte, error) {
	switch {
	case len(b) < 5:
		return nil, fmt.Errorf("no message in %d bytes", len(b))
	case b[0] != 0:
		return nil, errors.New("a compressed message, which was not asked for")
	case uint64(binary.BigEndian.Uint32(b[1:5])) != uint64(len(b)-5):
		return nil, fmt.Errorf("a message of %d bytes in %d", binary.BigEndian.Uint32(b[1:5]), len(b)-5)
	}
	return b[5:], nil
}

// The messages, by health.proto: both have one field, number 1.
//
//	HealthCheckRequest  { string service = 1; }
//	HealthCheckResponse { ServingStatus status = 1; }
const (
	varintField1 = 1 << 3 // wire type 0
	bytesField1  = 1<<3 | 2
)

func encodeHealthCheckRequest(service string) []byte {
	if service == "" {
		return nil // proto3 leaves out what is empty
	}
	return append(binary.AppendUvarint([]byte{bytesField1}, uint64(len(service))), service...)
}

// The serving statuses. 0 is what an empty message says.
const serving = 1

func servingStatus(status uint64) string {
	names := [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}
	if status < uint64(len(names)) {
		return names[status]
	}
	return "serving status " + strconv.FormatUint(status, 10)
}

var errProtobuf = errors.New("the message is no HealthCheckResponse")

// decodeHealthCheckResponse returns the status. Fields that are unknown are skipped,
// as protobuf demands (encoding.md, "Message Structure").
func decodeHealthCheckResponse(b []byte) (status uint64, err error) {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, errProtobuf
		}
		b = b[n:]
		var skip uint64
		switch tag & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return 0, errProtobuf
			}
			if tag == varintField1 {
				status = v
			}
			skip = uint64(n)
		case 1:
			skip = 8
		case 2:
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return 0, errProtobuf
			}
			skip = uint64(n) + length
		case 5:
			skip = 4
		default:
			return 0, errProtobuf
		}
		if skip > uint64(len(b)) {
			return 0, errProtobuf
		}
		b = b[skip:]
	}
	return status, nil
}
