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
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/slurp"
)

// requestOverhead is what a request costs beside its body while it waits for a server: the
// connection's buffers and the stacks of its goroutines, on both sides of the gateway.
const requestOverhead = 32 << 10

// unproven is the most bytes of a body that are held before a credential was seen, where one is
// required.
const unproven = 256 << 10

// Budgeted gives each request its part of the memory budget, under the name of its caller.
func Budgeted(budget *membudget.Budget, refuse Refuse) Stage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scope := budget.Scope(CallerKey(r.Context()))
			defer scope.Release()
			if err := scope.Take(requestOverhead); err != nil {
				refuse(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(membudget.With(r.Context(), scope)))
		})
	}
}

// CallerKey names who holds what a request holds: the caller, at the address it called from. A
// token may be shared by many, and where none is required everybody is the same caller.
func CallerKey(ctx context.Context) string {
	from := ""
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		from = r.from
	}
	who, err := auth.From(ctx)
	if err != nil {
		return "unauthenticated@" + from
	}
	return callerKey(who, from)
}

func callerKey(who auth.Caller, from string) string {
	return who.Tenant() + "/" + who.Subject() + "@" + from
}

// SetCaller says who sent a request whose credential stood in its body.
func SetCaller(ctx context.Context, who auth.Caller) error {
	from := ""
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		from = r.from
	}
	return membudget.From(ctx).Assign(callerKey(who, from))
}

// remoteHost is the host of a remote address. Of an IPv6 address the network is meant: whoever
// has one address of it has all of them.
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

// ReadBody takes a request's body off the wire, at most so many bytes of it, and charges them to
// the request's part of the memory budget.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	return ReadBodyInto(nil, w, r, most)
}

// ReadBodyInto is ReadBody with room that is used if the body fits into it.
func ReadBodyInto(room []byte, w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := slurp.Into(room, r.Body, r.ContentLength, most, membudget.From(r.Context()))
	if err != nil {
		return nil, bodyFault(err)
	}
	BodyRead(w)
	return body, nil
}

// ReadMessage is ReadBody where a credential may stand in the body. Of a request that has shown
// none, where one is required, the first part is read, and the rest only if the credential
// stands in it.
func ReadMessage(w http.ResponseWriter, r *http.Request, most int64, gate *auth.Gate) ([]byte, error) {
	if _, err := auth.From(r.Context()); err == nil || r.ContentLength >= 0 && r.ContentLength <= unproven {
		return ReadBody(w, r, most)
	}
	scope := membudget.From(r.Context())
	if err := scope.Take(unproven); err != nil {
		return nil, err
	}
	head := make([]byte, unproven)
	n, err := io.ReadFull(r.Body, head)
	if (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && r.ContentLength < 0 {
		BodyRead(w)
		return head[:n], nil
	}
	if err != nil {
		return nil, bodyFault(err)
	}
	who, err := gate.Find(head)
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return nil, err
	}
	if err := SetCaller(r.Context(), who); err != nil {
		return nil, err
	}
	body, err := slurp.Claimed(io.MultiReader(bytes.NewReader(head), r.Body), r.ContentLength, most, scope)
	if err != nil {
		return nil, bodyFault(err)
	}
	scope.Give(unproven)
	BodyRead(w)
	return body, nil
}

// bodyFault says what went wrong while a body was read.
func bodyFault(err error) error {
	var tooLarge *http.MaxBytesError
	var told *fault.Error
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, slurp.ErrTooLarge), errors.As(err, &tooLarge):
		return fault.Wrap(fault.TooLarge, "the request is too large", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Wrap(fault.Stalled, "the request did not arrive in time", err)
	}
	return fault.Wrap(fault.Canceled, "the request did not arrive whole", err)
}
