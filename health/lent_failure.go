package health

import (
	"errors"
	"strings"
	"unicode"
)

// failure is why the library gave up, nil if it did not. An error of the
// connection says more than what the library makes of it.
func (l *lent) failure(err error) error {
	if err == nil {
		return nil
	}
	if f := (*Failure)(nil); errors.As(err, &f) {
		return f
	}
	l.mu.Lock()
	met, phase := l.err, l.phase
	l.mu.Unlock()
	cause := rootCause(err)
	if phase == tlsBegun {
		if met != nil {
			cause = met
		}
		return handshakeFailure(cause)
	}
	switch {
	case errors.Is(met, errTooMuch):
		return &Failure{L7RSP, errTooMuch}
	case met != nil:
		return answerFailure(met)
	}
	return &Failure{L7RSP, cause}
}

// untouched reports whether the library gave up before any TLS, and not because of
// an error of the connection.
func (l *lent) untouched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && l.phase == tlsNotBegun
}

// rootCause is the innermost error: libraries wrap it in the address and in what
// they were doing, which status and log show already.
func rootCause(err error) error {
	for {
		switch wrapper := err.(type) {
		case interface{ Unwrap() error }:
			if wrapper.Unwrap() == nil {
				return err
			}
			err = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			if len(wrapper.Unwrap()) == 0 {
				return err
			}
			err = wrapper.Unwrap()[0]
		default:
			return err
		}
	}
}

// said is a server's message fit for status and log: on one line, and without the
// password, which some servers repeat when they do not know the command it came in.
func said(message string, password Secret) string {
	if password != "" {
		message = strings.ReplaceAll(message, string(password), password.String())
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, message)
}
