package chat

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/llm"
)

// tokenHeader carries the gateway's token when the usual headers carry the provider's key.
const tokenHeader = "X-Ctxgate-Token"

// authenticated refuses clients without the gateway's token (A8), before a byte of the body is read.
func (p *activeConfig) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := p.identify(r)
		if err != nil {
			p.Gate.Refuse(w, r, err)
			p.wires.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.WithCaller(r.Context(), who)))
	})
}

// identify returns the caller of a request. tokenHeader decides if it is there; otherwise the token may be
// where SDKs put an API key.
func (p *activeConfig) identify(r *http.Request) (auth.Caller, error) {
	if values := r.Header.Values(tokenHeader); len(values) > 0 {
		return p.Gate.AuthenticateToken(r.Context(), strings.Join(values, "\n")) // two tokens are refused: none has a line break
	}
	who, err := p.Gate.Authenticate(r)
	if err == nil {
		return who, nil
	}
	keys, _ := splitQuery(r.URL.RawQuery, p.wires.vendorOf(r).KeyParam())
	for _, given := range [][]string{r.Header.Values("X-Api-Key"), r.Header.Values("X-Goog-Api-Key"), keys} {
		if len(given) == 1 {
			who, err = p.Gate.AuthenticateToken(r.Context(), given[0])
			break
		}
	}
	if err != nil { // these may all be for the provider
		if certified, failed := p.Gate.AuthenticateCertificate(r); failed == nil {
			return certified, nil
		}
	}
	return who, err
}

// isGatewayToken says whether a header's value is the gateway's own token.
func (p *activeConfig) isGatewayToken(value string) bool {
	if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
		value = strings.TrimSpace(token)
	}
	return p.Gate.IsOwn(value)
}

// credentialHeaders may carry a client's own key for a provider.
var credentialHeaders = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// droppedRequestHeaders are not forwarded, in addition to hop-by-hop headers.
var droppedRequestHeaders = map[string]bool{
	tokenHeader: true, "Cookie": true, "Host": true, "Content-Length": true, "Expect": true,
	"Accept-Encoding":  true, // the usage of a compressed reply could not be read
	"Content-Encoding": true, // the body is forwarded decoded
	"Origin":           true, "Referer": true, "Forwarded": true, "X-Real-Ip": true,
}

var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// splitCredentials splits the client's headers and its query into what is forwarded and the client's own
// credentials. A key in the query becomes a header: it does not belong into addresses, which are logged.
func (p *activeConfig) splitCredentials(r *http.Request, v llm.Vendor) (head, own http.Header, query string) {
	head, own = p.splitHeaders(r.Header)
	keys, query := splitQuery(r.URL.RawQuery, v.KeyParam())
	if len(keys) == 1 && !p.isGatewayToken(keys[0]) {
		asHeader := http.Header{}
		v.SetKey(asHeader, keys[0])
		for name, values := range asHeader {
			if own[name] == nil {
				own[name] = values
			}
		}
	}
	return head, own, query
}

// splitQuery takes a parameter out of a query, and leaves the other bytes as they are.
func splitQuery(query, param string) (values []string, rest string) {
	if param == "" || query == "" {
		return nil, query
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(name); err != nil || name != param {
			kept = append(kept, pair)
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			values = append(values, value)
		}
	}
	return values, strings.Join(kept, "&")
}

// eventsParam is the endpoint's EventsParam, if the client sent it.
func (c *call) eventsParam() string {
	for pair := range strings.SplitSeq(c.query, "&") {
		if pair == c.EventsParam {
			return pair
		}
	}
	return ""
}

// splitHeaders splits the client's headers into those that are forwarded and the client's own credentials.
func (p *activeConfig) splitHeaders(in http.Header) (head, own http.Header) {
	head, own = endToEndHeaders(in), http.Header{}
	for name := range head {
		if droppedRequestHeaders[name] || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Sec-Fetch-") {
			delete(head, name)
		}
	}
	for _, name := range credentialHeaders {
		for _, value := range head[name] {
			if !p.isGatewayToken(value) {
				own.Add(name, value)
			}
		}
		delete(head, name)
	}
	if head["User-Agent"] == nil {
		head["User-Agent"] = []string{""} // or net/http would add its own
	}
	return head, own
}

// fallbackHeaders are the only client headers that a fallback gets: what the body is, what may be answered,
// and which version of the API. Any other may be a credential for the provider that the client meant, or
// identify the client there.
var fallbackHeaders = []string{
	"Accept", "Content-Type", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta",
}

func headersForFallback(head http.Header) http.Header {
	out := make(http.Header, len(fallbackHeaders))
	for _, name := range fallbackHeaders {
		if values := head[name]; values != nil {
			out[name] = slices.Clip(values)
		}
	}
	return out
}

// endToEndHeaders removes the headers of the connection (RFC 9110, 7.6.1).
func endToEndHeaders(in http.Header) http.Header {
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

// admit applies the rate limit and the limit of concurrent requests. The caller must call release.
func (px *Proxy) admit(ctx context.Context, p *activeConfig, who auth.Caller) (release func(), err error) {
	if err := p.Gate.Admit(who); err != nil {
		return nil, err
	}
	release = px.inFlight.Acquire(front.CallerKey(ctx), p.Chat.LLM.MaxConcurrent)
	if release == nil {
		err := fault.New(fault.Full, "too many requests are in flight")
		err.RetryAfter = time.Second
		return nil, err
	}
	return release, nil
}
