// Package fault classifies failures. A [Kind] says what went wrong, from a closed list that is also the
// metric label; an [Error] keeps the text that a client may read (Public) apart from the cause for the
// log (Err). [Clip] shortens texts of others for both.
//
// Each protocol maps every Kind to its own code in exactly one place; a test there ranges over
// [Kinds], so a new Kind cannot be forgotten.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is what went wrong, for the caller that has to act on it.
type Kind uint8

// The kinds. Internal is the zero value: an unclassified error is the gateway's own fault.
const (
	Internal       Kind = iota
	Syntax              // the request is not JSON
	InvalidRequest      // JSON, but not a valid request
	BadParams           // a valid request with invalid params
	NoMethod            // a method that is not supported
	Unauthorized        // no credential, or a wrong one
	Forbidden           // authenticated, and not allowed
	NotFound            // no such server, tool or route
	UnknownHandle       // no such id, or it has expired: callers cannot tell which
	TooLarge            // over a size limit
	Stalled             // the client did not send its request in time
	RateLimited         // over a rate limit; RetryAfter says when to retry
	OverBudget          // a budget is used up; RetryAfter says when it renews, and no retry helps before
	Unavailable         // the upstream refused or cannot be reached
	Timeout             // the upstream did not answer in time
	BadReply            // the upstream answered, but not in its protocol
	Full                // a store or queue is at its limit
	Canceled            // the client left
	kindCount
)

var kindNames = [kindCount]string{
	Internal:       "internal",
	Syntax:         "syntax",
	InvalidRequest: "invalid",
	BadParams:      "bad_params",
	NoMethod:       "no_method",
	Unauthorized:   "unauthorized",
	Forbidden:      "forbidden",
	NotFound:       "not_found",
	UnknownHandle:  "unknown_handle",
	TooLarge:       "too_large",
	Stalled:        "stalled",
	RateLimited:    "rate_limited",
	OverBudget:     "over_budget",
	Unavailable:    "unavailable",
	Timeout:        "timeout",
	BadReply:       "bad_reply",
	Full:           "full",
	Canceled:       "canceled",
}

// String is the kind's name in logs and metric labels.
func (k Kind) String() string {
	if k < kindCount {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Kinds lists every kind, for exhaustive maps and their tests.
func Kinds() []Kind {
	all := make([]Kind, 0, kindCount)
	for k := Kind(0); k < kindCount; k++ {
		all = append(all, k)
	}
	return all
}

// Error is a classified failure.
type Error struct {
	Kind       Kind
	Public     string        // the only text a client sees; no internals
	RetryAfter time.Duration // zero when not known
	Err        error         // the cause, for the log; may be nil
}

// New makes an error without a cause.
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
		return cause // classified twice: say it once
	}
	return e.Public + ": " + cause
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf classifies any error: by the outermost [Error], then by the context's own errors; any other
// error is [Internal].
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

// PublicOf is the text that a client may read for err; nothing of an unclassified error.
func PublicOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Public != "" {
		return e.Public
	}
	return "internal error"
}

// RetryAfterOf is how long to wait before a retry; zero when not known.
func RetryAfterOf(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// maxClip is how many bytes [Clip] leaves of a text.
const maxClip = 128

// Clip shortens a text of unknown origin, such as a name that a client sent, for an error or log message.
func Clip(s string) string { return ClipTo(s, maxClip) }

// ClipTo is Clip to at most n bytes, and an ellipsis where it cuts. It does not split a character.
func ClipTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
