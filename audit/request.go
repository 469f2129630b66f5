package audit

import "context"

type requestKey struct{}

// WithRequestID adds the id of a request to the context, for the lines about it.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestID is the id of the request; "" if it has none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
