package chat

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
)

// tokenHeader carries the gateway's token where the usual headers carry the provider's key.
const tokenHeader = "X-Ctxgate-Token"

// authenticated lets in who knows the gateway's token (A8), before a byte of the body is read.
func (p *plan) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := p.identify(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			Refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), who)))
	})
}

// identify says who sent the request. Its own header decides where there is one; otherwise the
// token may stand where SDKs put an API key.
func (p *plan) identify(r *http.Request) (auth.Caller, error) {
	if values := r.Header.Values(tokenHeader); len(values) > 0 {
		return p.gate.Check(strings.Join(values, "\n")) // two are none: no token has a line break
	}
	who, err := p.gate.Identify(r)
	if keys := r.Header.Values("X-Api-Key"); err != nil && len(keys) == 1 {
		return p.gate.Check(keys[0])
	}
	return who, err
}

// knows says that a header's value is the gateway's own token.
func (p *plan) knows(value string) bool {
	if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
		value = strings.TrimSpace(token)
	}
	_, err := p.gate.Check(value)
	return p.asks && err == nil
}

// credentials are the headers that may carry a client's own key for a provider.
var credentials = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// private are headers of a request that are no provider's business, besides those that belong to a
// connection.
var private = map[string]bool{
	tokenHeader: true, "Cookie": true, "Host": true, "Content-Length": true, "Expect": true,
	"Accept-Encoding":  true, // a reply that is compressed could not be read in passing
	"Content-Encoding": true, // the body is forwarded decoded
	"Origin":           true, "Referer": true, "Forwarded": true, "X-Real-Ip": true,
}

var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// forwarded splits the client's headers into what every provider gets, and the client's own
// credentials.
func (p *plan) forwarded(in http.Header) (head, own http.Header) {
	head, own = endToEnd(in), http.Header{}
	for name := range head {
		if private[name] || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Sec-Fetch-") {
			delete(head, name)
		}
	}
	for _, name := range credentials {
		for _, value := range head[name] {
			if !p.knows(value) {
				own.Add(name, value)
			}
		}
		delete(head, name)
	}
	if head["User-Agent"] == nil {
		head["User-Agent"] = []string{""} // or net/http would put its own
	}
	return head, own
}

// fallbackHeaders are the headers of a client that a fallback provider gets: what the body is, what may be
// answered, and by which rules of the API. Anything else may be a credential of the provider that the
// client meant, or say who the client is there.
var fallbackHeaders = []string{
	"Accept", "Content-Type", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta",
}

func forFallback(head http.Header) http.Header {
	out := make(http.Header, len(fallbackHeaders))
	for _, name := range fallbackHeaders {
		if values := head[name]; values != nil {
			out[name] = slices.Clip(values)
		}
	}
	return out
}

// endToEnd are the headers that do not belong to the connection (RFC 9110, 7.6.1).
func endToEnd(in http.Header) http.Header {
	out := make(http.Header, len(in))
	for name, values := range in {
		if !hopByHop[name] {
			out[name] = slices.Clip(values)
		}
	}
	for _, line := range in["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	return out
}

// admit is asked once for every request. The function it returns gives the place back.
func (d *Door) admit(ctx context.Context, p *plan, who auth.Caller) (func(), error) {
	if err := d.deps.Limiter.Admit(who.Subject()); err != nil {
		return nil, err
	}
	release := d.busy.Acquire(front.CallerKey(ctx), p.Chat.LLM.MaxConcurrent)
	if release == nil {
		err := fault.New(fault.Full, "too many requests are under way")
		err.RetryAfter = time.Second
		return nil, err
	}
	return release, nil
}
