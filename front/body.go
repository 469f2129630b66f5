package front

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/readbody"
)

// requestOverhead is the memory of a request beside its body while it waits for a server: connection
// buffers and goroutine stacks, on both sides of the gateway.
const requestOverhead = 32 << 10

// maxUnauthenticated is how much of a body is held before a credential was found, where one is required.
const maxUnauthenticated = 256 << 10

// ChargeMemory opens a scope of the memory budget for each request, in its caller's name.
func ChargeMemory(budget *membudget.Budget, onError ErrorHandler) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scope := budget.Scope(CallerKey(r.Context()))
			defer scope.Release()
			if err := scope.Reserve(requestOverhead); err != nil {
				onError(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(membudget.NewContext(r.Context(), scope)))
		})
	}
}

// CallerKey names the owner of a request's memory: the caller and its remote host. A token may be shared
// by many clients, and where none is required all are the same caller.
func CallerKey(ctx context.Context) string {
	caller, err := auth.CallerFrom(ctx)
	if err != nil {
		return "unauthenticated@" + remoteHostOf(ctx)
	}
	return callerKey(ctx, caller)
}

func callerKey(ctx context.Context, c auth.Caller) string {
	return c.Key() + "@" + remoteHostOf(ctx)
}

func remoteHostOf(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*requestInfo); ok {
		return r.remoteHost
	}
	return ""
}

// SetMemoryOwner charges the request's memory to a caller whose credential was in the body.
func SetMemoryOwner(ctx context.Context, caller auth.Caller) error {
	return membudget.FromContext(ctx).SetCaller(callerKey(ctx, caller))
}

// remoteHost is the host of a remote address. For IPv6 it is the /64 network, because one client usually
// has all of its addresses.
func remoteHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() || ip.Is4In6() || ip.IsLoopback() {
		return host
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}

// ReadBody reads a request's body, of at most so many bytes, and charges it to the request's memory
// scope.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := readbody.ReadUntrusted(r.Body, r.ContentLength, most, membudget.FromContext(r.Context()))
	if err != nil {
		return nil, BodyFault(err)
	}
	ClearBodyDeadline(w)
	return body, nil
}

// ReadBodyWithToken is ReadBody for requests whose credential may be in the body. Of a request that is not
// authenticated it reads the first part, and the rest only if a valid token is in it.
func ReadBodyWithToken(w http.ResponseWriter, r *http.Request, most int64, g *gate.Gate) ([]byte, error) {
	if _, err := auth.CallerFrom(r.Context()); err == nil || r.ContentLength >= 0 && r.ContentLength <= maxUnauthenticated {
		return ReadBody(w, r, most)
	}
	scope := membudget.FromContext(r.Context())
	if err := scope.Reserve(maxUnauthenticated); err != nil {
		return nil, err
	}
	head := make([]byte, maxUnauthenticated)
	n, err := io.ReadFull(r.Body, head)
	if (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && r.ContentLength < 0 {
		ClearBodyDeadline(w)
		return head[:n], nil
	}
	if err != nil {
		return nil, BodyFault(err)
	}
	caller, err := g.FindToken(r.Context(), head)
	if err != nil {
		g.Refuse(w, r, err)
		return nil, err
	}
	if err := SetMemoryOwner(r.Context(), caller); err != nil {
		return nil, err
	}
	body, err := readbody.ReadUntrusted(io.MultiReader(bytes.NewReader(head), r.Body), r.ContentLength, most, scope)
	if err != nil {
		return nil, BodyFault(err)
	}
	scope.Free(maxUnauthenticated)
	ClearBodyDeadline(w)
	return body, nil
}

// BodyFault classifies an error while reading a body.
func BodyFault(err error) error {
	var tooLarge *http.MaxBytesError
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, readbody.ErrTooLarge), errors.As(err, &tooLarge):
		return fault.Wrap(fault.TooLarge, "the request is too large", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Wrap(fault.Stalled, "the request did not arrive in time", err)
	}
	return fault.Wrap(fault.Canceled, "the request did not arrive whole", err)
}
