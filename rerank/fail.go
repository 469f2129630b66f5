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

// Kind is how asking failed.
type Kind uint8

// The kinds of failure.
const (
	KindConfig Kind = iota + 1 // the Config cannot be used, and nobody was asked
	KindHTTP                   // the reranker cannot be reached, was too slow, or refused
	KindParse                  // it answered, but not with scores for these documents
)

var kinds = [...]string{KindConfig: "config", KindHTTP: "http", KindParse: "parse"}

// String is the kind's name in logs.
func (k Kind) String() string {
	if int(k) < len(kinds) && kinds[k] != "" {
		return kinds[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is a failure to get scores.
type Error struct {
	Kind   Kind
	Status int   // of the reply; 0 where there was none
	Err    error // the cause; the context's own error where time ran out or the caller left
}

func (e *Error) Error() string { return "asking the reranker: " + e.Err.Error() }

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

func misconfigured(why string) *Error {
	return &Error{Kind: KindConfig, Err: errors.New(why)}
}

func unreadable(status int, err error) *Error {
	return &Error{Kind: KindParse, Status: status, Err: fmt.Errorf("its answer cannot be used: %w", err)}
}

// left is the error of a call whose context is over. That the reranker was busy says more than that
// time ran out on the way to ask it again.
func left(ctx context.Context, why *refusal) *Error {
	if why == nil {
		return &Error{Kind: KindHTTP, Err: fmt.Errorf("gave up waiting: %w", ctx.Err())}
	}
	return &Error{Kind: KindHTTP, Status: why.status, Err: fmt.Errorf("gave up asking again: %w: %w", ctx.Err(), why)}
}

// refusal is a status that was not hoped for. Of what the server said about it nothing is repeated:
// servers quote requests, and requests hold texts and keys.
type refusal struct {
	status int
	after  time.Duration // when to come back, where it says so
}

func (r *refusal) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", r.status, http.StatusText(r.status)))
}

// passing says that the same request may be answered a moment later.
func (r *refusal) passing() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// errRepeated stands for an error that would have told the key.
var errRepeated = errors.New("the connection failed, with an error that repeats the API key")

// broken is the cause of a failed connection without the URL, which may hold a secret.
func (c *Client) broken(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	if c.key != "" && strings.Contains(err.Error(), c.key) {
		return errRepeated
	}
	return err
}
