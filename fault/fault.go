// Package fault is the one vocabulary of failure. A [Kind] says what went wrong in a
// closed list that is also the metric label; [Error] carries the sentence a client may read
// (Public) apart from the cause that only the log sees (Err).
//
// Each wire maps every Kind to its own code in exactly one place; a test there ranges over
// [Kinds], so a new Kind cannot be forgotten.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is what went wrong, from the point of view of whoever has to act on it.
type Kind uint8

// The kinds. Internal is the zero value: an error nobody classified is our own fault.
const (
	Internal     Kind = iota
	Syntax            // the request is not JSON
	Invalid           // the request is JSON, but not a request we take
	BadParams         // a request we take, with params that it cannot have
	NoMethod          // a request for something that is not done here
	Unauthorized      // no credential, or a wrong one
	Forbidden         // known, and not allowed
	NotFound          // no such server, tool or route
	Unknown           // no such handle, or it has expired: the two are never told apart
	TooLarge          // over a size limit
	Stalled           // the client did not send its request in time
	RateLimited       // over a rate limit; RetryAfter says when to come back
	Unavailable       // the far side refused or cannot be reached
	Timeout           // the far side did not answer in time
	BadReply          // the far side answered, but not in its protocol
	Full              // a store or queue is at its limit
	Canceled          // the client left
	kinds
)

var names = [kinds]string{
	Internal:     "internal",
	Syntax:       "syntax",
	Invalid:      "invalid",
	BadParams:    "bad_params",
	NoMethod:     "no_method",
	Unauthorized: "unauthorized",
	Forbidden:    "forbidden",
	NotFound:     "not_found",
	Unknown:      "unknown_handle",
	TooLarge:     "too_large",
	Stalled:      "stalled",
	RateLimited:  "rate_limited",
	Unavailable:  "unavailable",
	Timeout:      "timeout",
	BadReply:     "bad_reply",
	Full:         "full",
	Canceled:     "canceled",
}

// String is the kind's name in logs and metric labels.
func (k Kind) String() string {
	if k < kinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Kinds lists every kind, for exhaustive maps and their tests.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds)
	for k := Kind(0); k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// Error is a classified failure.
type Error struct {
	Kind       Kind
	Public     string        // the only text a client sees; no internals
	RetryAfter time.Duration // zero: nothing to say about when
	Err        error         // the cause, for the log; may be nil
}

// New makes a failure whose public text is all there is to say.
func New(k Kind, public string) *Error { return &Error{Kind: k, Public: public} }

// Wrap classifies err and gives it a public text.
func Wrap(k Kind, public string, err error) *Error {
	return &Error{Kind: k, Public: public, Err: err}
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Public
	}
	cause := e.Err.Error()
	if cause == e.Public || strings.HasPrefix(cause, e.Public+": ") {
		return cause // it was classified twice, and says so once
	}
	return e.Public + ": " + cause
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf classifies any error: the outermost [Error] decides, then the context's own
// errors, and what nobody classified is [Internal].
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Internal
}

// PublicOf is the text a client may see for err; an unclassified error shows nothing of itself.
func PublicOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Public != "" {
		return e.Public
	}
	return "internal error"
}

// RetryAfterOf is when it makes sense to try again; zero when nobody said.
func RetryAfterOf(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}
