package fakeprovider

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// endpoint serves one wire shape.
type endpoint struct {
	shape        Shape
	callPrefix   string // of tool call ids
	replyPrefix  string // of reply ids
	readRequest  func(*Provider, *http.Request, []byte) (*request, *apiError)
	encodeBody   func(reply) []byte
	encodeEvents func(reply) []sse.Event
}

// reply is everything that a reply is encoded from.
type reply struct {
	Step
	*request
	cacheUse
	id            string
	reportsWrites bool // the usage includes cache writes
	created       time.Time
	newID         func(prefix string) string
}

func endpoints() map[string]endpoint {
	return map[string]endpoint{
		"POST /chat/completions": {Chat, "call_", "chatcmpl-", readChat, reply.chatBody, reply.chatEvents},
		"POST /responses":        {Responses, "call_", "resp_", readResponses, reply.responsesBody, reply.responsesEvents},
		"POST /messages":         {Messages, "toolu_", "msg_", readMessages, reply.messagesBody, reply.messagesEvents},
	}
}

// serve records a request, routes it, and records its status.
func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	if !p.startHandler() {
		panic(http.ErrAbortHandler)
	}
	defer p.busy.Done()
	body, err := io.ReadAll(r.Body)
	rec := p.record(r, body)
	if err != nil {
		p.updateRequest(rec, func(r *Request) { r.ClientGone = true })
		return
	}
	path := "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1"), "/")
	status := 0
	d, ok := endpoints()[r.Method+" "+path]
	if !ok {
		d, ok = geminiEndpoint(r.Method, path)
	}
	if ok {
		p.updateRequest(rec, func(r *Request) { r.Shape = d.shape })
		status = p.serveReply(w, r, d, rec, body)
	} else {
		status = p.serveOther(w, r, path, body)
	}
	p.updateRequest(rec, func(r *Request) { r.Status = status })
}

// startHandler makes Close wait for the handler; it returns false after Close.
func (p *Provider) startHandler() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.busy.Add(1)
	return true
}

func (p *Provider) record(r *http.Request, body []byte) *Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(p.opts.ClockStep)
	rec := &Request{
		Seq: len(p.requests), Method: r.Method, Path: r.URL.Path, At: p.now,
	}
	if !p.opts.DiscardBodies {
		rec.Header, rec.Body = r.Header.Clone(), body
	}
	p.requests = append(p.requests, rec)
	return rec
}

func (p *Provider) updateRequest(rec *Request, f func(*Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(rec)
}

// serveReply replies to a model request and returns the status.
func (p *Provider) serveReply(w http.ResponseWriter, r *http.Request, d endpoint, rec *Request, body []byte) int {
	a, apiErr := p.readRequest(r, d, body)
	if apiErr != nil {
		return p.sendError(w, d.shape, apiErr)
	}
	s := p.nextStep(p.recordParsed(rec, a)).withDefaults(p, d.callPrefix)
	if !sleep(r.Context(), s.Delay) {
		return p.clientLeft(rec)
	}
	if s.Fail != nil && (s.AfterEvents == 0 || !a.stream) {
		return p.sendError(w, d.shape, s.Fail.apiError(d.shape, a.model))
	}
	ans := p.charge(r, d, rec, a, s)
	if s.Cut && s.AfterEvents == 0 {
		panic(http.ErrAbortHandler)
	}
	setRequestID(w.Header(), d.shape, p.newID("req_"))
	if a.stream {
		return p.sendStream(w, r, d, rec, ans)
	}
	return p.sendBody(w, d, ans)
}

func (p *Provider) clientLeft(rec *Request) int {
	p.updateRequest(rec, func(r *Request) { r.ClientGone = true })
	return 0
}

// recordParsed records the parsed request and returns it for the script.
func (p *Provider) recordParsed(rec *Request, a *request) Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec.Model, rec.Stream, rec.Tools, rec.ToolTurns = a.model, a.stream, a.tools, a.toolTurns
	rec.Tokens = a.prompt.tokens()
	r := *rec
	r.Results = a.results
	if !p.opts.DiscardBodies {
		rec.Results = a.results
	}
	return r
}

// readRequest parses and validates a request: key, body, model, prompt length.
func (p *Provider) readRequest(r *http.Request, d endpoint, body []byte) (*request, *apiError) {
	if apiErr := p.checkKey(r, d.shape); apiErr != nil {
		return nil, apiErr
	}
	a, apiErr := d.readRequest(p, r, body)
	if apiErr != nil {
		return nil, apiErr
	}
	if len(p.opts.Models) > 0 && !slices.Contains(p.opts.Models, a.model) {
		return nil, Failure{Status: http.StatusNotFound}.apiError(d.shape, a.model)
	}
	return a, p.checkWindow(d.shape, a.prompt.tokens())
}

// checkKey checks the API key: a bearer token, or Anthropic's own header.
func (p *Provider) checkKey(r *http.Request, s Shape) *apiError {
	key := credential(r)
	if key != "" && (p.opts.Key == "" || key == p.opts.Key) {
		return nil
	}
	apiErr := Failure{Status: http.StatusUnauthorized}.apiError(s, "")
	if key == "" && s == Messages {
		apiErr.message = "x-api-key header is required"
	}
	if key == "" && s != Messages {
		apiErr.code = ""
		apiErr.message = "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank username) if you're accessing the API from your browser and are prompted for a username and password. You can obtain an API key from https://platform.openai.com/account/api-keys."
	}
	return apiErr
}

func credential(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	if key := r.Header.Get("X-Goog-Api-Key"); key != "" {
		return key
	}
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return key
}

func (p *Provider) checkWindow(s Shape, tokens int) *apiError {
	limit := p.opts.ContextWindow
	if limit == 0 || tokens <= limit {
		return nil
	}
	switch s {
	case Messages:
		return invalid("", "", "prompt is too long: %d tokens > %d maximum", tokens, limit)
	case Responses:
		return invalid("input", "context_length_exceeded", "Your input exceeds the context window of this model. Please adjust your input and try again.")
	}
	return invalid("messages", "context_length_exceeded", "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, tokens)
}

// charge adds the request to the bill and caches its prefix.
func (p *Provider) charge(r *http.Request, d endpoint, rec *Request, a *request, s Step) reply {
	now := p.Now()
	scope := a.model + "\x00" + credential(r)
	h := cacheUse{uncached: a.prompt.tokens()}
	switch {
	case p.opts.NoCache:
	case d.shape == Messages:
		h = p.cache.chargeBreakpoints(scope, a.prompt, now, p.opts.MinCacheTokens)
	default:
		ttl := p.opts.CacheTTL
		if a.cacheTTL > 0 {
			ttl = a.cacheTTL
		}
		if p.opts.MarksLast {
			h = p.cache.chargeEnds(scope, a.prompt, now, ttl, p.opts.MinCacheTokens)
		} else {
			h = p.cache.chargeAutomatic(scope, a.prompt, now, ttl, p.opts.MinCacheTokens, p.opts.CacheUnit)
		}
	}
	if d.shape == Gemini { // writing to its cache costs nothing, and is not reported
		h.uncached, h.cacheWritten = h.uncached+h.cacheWritten, 0
	}
	p.mu.Lock()
	p.entries = append(p.entries, &Usage{
		Uncached: h.uncached, CacheWrite: h.cacheWritten, CacheWrite1h: h.cacheWritten1h, CacheRead: h.cacheRead,
		Output: s.outputTokens(), Seq: rec.Seq, Shape: d.shape, Model: a.model,
	})
	p.mu.Unlock()
	ans := reply{Step: s, request: a, cacheUse: h, id: p.newID(d.replyPrefix), reportsWrites: p.opts.Prices.Write > 1, created: now, newID: p.newID}
	if a.store {
		p.storeResponse(ans)
	}
	return ans
}

// sleep returns false if the client disconnects first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sendBody sends a reply that is not streamed.
func (p *Provider) sendBody(w http.ResponseWriter, d endpoint, a reply) int {
	body := d.encodeBody(a)
	if a.Garbage != "" {
		body = []byte(a.Garbage)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if a.Cut {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
	return http.StatusOK
}

// sendStream sends a reply event by event.
func (p *Provider) sendStream(w http.ResponseWriter, r *http.Request, d endpoint, rec *Request, a reply) int {
	w.Header().Set("Content-Type", streamType(d.shape))
	if a.asArray {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for i, e := range d.encodeEvents(a) {
		raw := sse.AppendEvent(nil, e)
		if a.asArray {
			raw = append([]byte{"[,"[min(i, 1)]}, append(e.Data, "\r\n"...)...)
		}
		if i == a.AfterEvents {
			switch {
			case a.Cut:
				p.updateRequest(rec, func(r *Request) { r.Status = http.StatusOK })
				panic(http.ErrAbortHandler)
			case a.Fail != nil:
				raw = sse.AppendEvent(nil, a.Fail.apiError(d.shape, a.model).event(d.shape, i))
			case a.Garbage != "":
				raw = append([]byte(a.Garbage), raw...)
			}
		}
		if !sleep(r.Context(), a.EventDelay) {
			p.clientLeft(rec)
			return http.StatusOK
		}
		if _, err := w.Write(raw); err != nil || out.Flush() != nil {
			p.clientLeft(rec)
			return http.StatusOK
		}
		if i == a.AfterEvents && a.Fail != nil {
			return http.StatusOK
		}
	}
	if a.asArray {
		_, _ = w.Write([]byte("]"))
	}
	return http.StatusOK
}

// streamType is the media type of each provider's streams.
func streamType(s Shape) string {
	if s == Chat {
		return "text/event-stream"
	}
	return "text/event-stream; charset=utf-8"
}
