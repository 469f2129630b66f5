package rerank

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ErrorKind is the kind of a failure.
type ErrorKind uint8

// The kinds of failure.
const (
	KindConfig ErrorKind = iota + 1 // the Config is invalid; nothing was sent
	KindHTTP                        // the reranker cannot be reached, was too slow, or answered with an error status
	KindParse                       // its reply has no scores for these documents
)

var kinds = [...]string{KindConfig: "config", KindHTTP: "http", KindParse: "parse"}

// String is the kind's name in logs.
func (k ErrorKind) String() string {
	if int(k) < len(kinds) && kinds[k] != "" {
		return kinds[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is a failure to get scores.
type Error struct {
	Kind   ErrorKind
	Status int   // of the reply; 0 if there was none
	Err    error // the cause; wraps the context's error on timeout or cancellation
}

func (e *Error) Error() string { return "asking the reranker: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func configError(why string) *Error {
	return &Error{Kind: KindConfig, Err: errors.New(why)}
}

func parseError(status int, err error) *Error {
	return &Error{Kind: KindParse, Status: status, Err: fmt.Errorf("its reply cannot be used: %w", err)}
}

// contextError is the error of a call whose context ended. If the reranker was being asked again after an
// error status, that status is the more useful part.
func contextError(ctx context.Context, why *statusError) *Error {
	if why == nil {
		return &Error{Kind: KindHTTP, Err: fmt.Errorf("gave up waiting: %w", ctx.Err())}
	}
	return &Error{Kind: KindHTTP, Status: why.status, Err: fmt.Errorf("gave up asking again: %w: %w", ctx.Err(), why)}
}

// statusError is an error status. The reply's body is not part of it: servers quote requests, and those
// hold texts and keys.
type statusError struct {
	status     int
	retryAfter time.Duration // from the header, 0 for none
}

func (r *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", r.status, http.StatusText(r.status)))
}

// isTransient reports whether the same request may succeed a moment later.
func (r *statusError) isTransient() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// errRedacted replaces an error that contains the key.
var errRedacted = errors.New("the connection failed, with an error that repeats the API key")

// withoutSecrets returns the cause of a failed connection without the URL, which may hold a secret.
func (c *Client) withoutSecrets(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	if c.key != "" && strings.Contains(err.Error(), c.key) {
		return errRedacted
	}
	return err
}
