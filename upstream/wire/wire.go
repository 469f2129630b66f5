// Package wire carries JSON-RPC messages between the gateway and one MCP server. There are four wires
// behind one interface, [Wire]: [Stdio] for a child process, [StreamableHTTP], [SSE] for the HTTP+SSE
// of 2024-11-05, and [PlainRPC] for a server that takes one message per POST.
//
// Path through the files: stdio.go; streamable.go, with refused.go for HTTP errors, resume.go for
// streams that break off and toolheaders.go for tool arguments that are sent as headers; sse.go;
// plain.go; http.go for what the HTTP wires share.
//
// Invariants: a wire sends each message at most once and retries nothing by itself, except a request
// that the server refused for its headers. A request that the server certainly did not start fails
// with an error for which [IsNotStarted] is true. Every wait and every buffer is bounded. A panic while
// input is read fails the request it was for, or else the connection.
package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Wire carries messages to one server. What the server sends goes to the request on whose own stream it
// came, or to the wire's [Receiver].
type Wire interface {
	// Send sends one message. req is the request that the message starts; nil for a notification or a
	// reply to the server.
	Send(req Request, msg []byte) error

	// Cancel tells the server, where the protocol has a message for it, that no caller waits for req any
	// more. The function that the wire gave to OnFinish is called after it.
	Cancel(req Request, reason string)

	// Close ends the wire, and waits until a child process is gone.
	Close()
}

// Request is an in-flight request as its wire sees it.
type Request interface {
	ID() int64
	Method() string
	Param(key string) []byte  // the raw value of a member of the params, as sent
	Memory() *membudget.Scope // is charged for the reply

	// Deliver takes a message that came on the request's own stream.
	Deliver(msg []byte)

	// ParseReply parses a message and reports whether it is the reply to this request. An error means
	// that it is not a JSON-RPC message at all.
	ParseReply(body []byte) (m rpc.Message, isReply bool, err error)

	Malformed(what string, err error) // counts input that is not a message, and fails the request
	Fail(err error)                   // ends the wait for the reply; the first failure counts
	IsFinished() bool                 // it has its reply, or its caller has left
	OnFinish(stop func())             // stop is called when the request is over
	RefreshTools(ctx context.Context) // lists the server's tools again, on the same connection
}

// Receiver is the connection above a wire.
type Receiver interface {
	// Receive takes a message from a stream that all requests share, and reports whether it was one. The
	// wire's memory scope holds charged bytes for it, which pass to the receiver.
	Receive(msg []byte, charged int64) bool

	// Malformed counts input that is not a message.
	Malformed(what string, err error)

	// Oversized fails the request that a message over the limit answers, if its ends tell which.
	Oversized(head, tail []byte, err error)

	// End ends the connection and fails everything in flight. Done is closed then, and Err says why.
	End(err error)
	Done() <-chan struct{}
	Err() error

	// ExpireSession ends the connection of a session that the server has forgotten, after the requests
	// in flight got their replies.
	ExpireSession(why error)

	// Ping sends a ping, to find out whether the session still exists.
	Ping(ctx context.Context) error
}

// Options are what every wire is opened with.
type Options struct {
	Server   string // the server's id, for logs
	Receiver Receiver
	Memory   *membudget.Scope // is charged for messages on streams that all requests share, while they are read
	MaxReply int64            // the largest message that is read
}

// recoverPanic is deferred by goroutines that read what a server sent. A bug that its bytes bring to light
// costs the request they were for, or else this connection, and nothing else.
func (o Options) recoverPanic(req Request) {
	if p := recover(); p != nil {
		err := PanicError(o.Server, p)
		if req != nil {
			req.Fail(err)
		} else {
			o.Receiver.End(err)
		}
	}
}

// PanicError logs a recovered panic and returns it as a failure.
func PanicError(server string, p any) error {
	slog.Error("reading a server's message panicked", "server", server, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fault.Wrap(fault.Internal, "internal error", fmt.Errorf("panic: %v", p))
}

// notStarted is the failure of a request that its server never received, or reported that it did not start:
// it may be sent again.
type notStarted struct{ error }

func (e notStarted) Unwrap() error { return e.error }

// NotStarted marks err as the failure of a request that the server did not start.
func NotStarted(err error) error { return notStarted{err} }

// IsNotStarted reports whether a request failed before its server started it.
func IsNotStarted(err error) bool {
	_, is := errors.AsType[notStarted](err)
	return is
}

// sessionForgotten is the failure of a request whose session the server does not know any more.
func sessionForgotten() error {
	return NotStarted(fault.New(fault.Unavailable, "the server forgot the session"))
}

// ConnLost is the failure of a request whose connection ended before the reply came.
func ConnLost(why error) error {
	if fault.KindOf(why) == fault.Internal {
		return fault.Wrap(fault.Unavailable, "the server went away during the call", why)
	}
	return why
}

// CallError classifies the failure of a request: the client canceled it, the server did not answer in
// time, or it cannot be reached.
func CallError(ctx context.Context, err error) error {
	var netErr net.Error
	var known *fault.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Wrap(fault.Canceled, "the client left", err)
	case ctx.Err() != nil, errors.As(err, &netErr) && netErr.Timeout():
		return fault.Wrap(fault.Timeout, "the server did not answer in time", err)
	case errors.As(err, &known): // an OAuth authorization that is missing
		return known
	}
	return fault.Wrap(fault.Unavailable, "the server is not available", err)
}

func tooLarge(err error) error {
	return fault.Wrap(fault.BadReply, "the server's answer is too large", err)
}

// Notification encodes a JSON-RPC notification; params may be nil.
func Notification(method string, params []byte) []byte {
	dst := append([]byte(`{"jsonrpc":"2.0","method":`), jsonscan.AppendQuoted(nil, method)...)
	if len(params) > 0 {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

func cancelNotification(id int64, reason string) []byte {
	return Notification(mcp.NotifyCancelled, fmt.Appendf(nil, `{"requestId":%d,"reason":%q}`, id, reason))
}
