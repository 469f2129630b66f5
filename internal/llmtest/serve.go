package llmtest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// door is how one shape is spoken.
type door struct {
	shape  Shape
	calls  string // how ids of calls begin
	answer string // how ids of answers begin
	read   func(*Provider, *http.Request, []byte) (*ask, *refusal)
	whole  func(answer) []byte
	events func(answer) []sse.Event
}

// answer is all that a reply is made of.
type answer struct {
	Step
	*ask
	hit
	id      string
	writes  bool // the usage tells what was written to the cache
	created time.Time
	number  func(prefix string) string // a new id
}

func doors() map[string]door {
	return map[string]door{
		"POST /chat/completions": {Chat, "call_", "chatcmpl-", readChat, answer.chatBody, answer.chatEvents},
		"POST /responses":        {Responses, "call_", "resp_", readResponses, answer.responsesBody, answer.responsesEvents},
		"POST /messages":         {Messages, "toolu_", "msg_", readMessages, answer.messagesBody, answer.messagesEvents},
	}
}

// serve takes one request: record, route, remember what became of it.
func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.busy.Done()
	body, err := io.ReadAll(r.Body)
	rec := p.record(r, body)
	if err != nil {
		p.note(rec, func(r *Request) { r.Gone = true })
		return
	}
	path := "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1"), "/")
	status := 0
	if d, ok := doors()[r.Method+" "+path]; ok {
		p.note(rec, func(r *Request) { r.Shape = d.shape })
		status = p.converse(w, r, d, rec, body)
	} else {
		status = p.other(w, r, path, body)
	}
	p.note(rec, func(r *Request) { r.Status = status })
}

// enter keeps Close waiting for the handler.
func (p *Provider) enter() bool {
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
	p.now = p.now.Add(p.opts.Tick)
	rec := &Request{
		Seq: len(p.requests), Method: r.Method, Path: r.URL.Path, At: p.now,
	}
	if !p.opts.Forgetful {
		rec.Header, rec.Body = r.Header.Clone(), body
	}
	p.requests = append(p.requests, rec)
	return rec
}

func (p *Provider) note(rec *Request, f func(*Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(rec)
}

// converse answers one request of a shape, and says with which status.
func (p *Provider) converse(w http.ResponseWriter, r *http.Request, d door, rec *Request, body []byte) int {
	a, bad := p.accept(r, d, body)
	if bad != nil {
		return p.refuse(w, d.shape, bad)
	}
	s := p.step(p.learn(rec, a)).finished(p, d.calls)
	if !wait(r.Context(), s.Delay) {
		return p.left(rec)
	}
	if s.Fail != nil && (s.At == 0 || !a.stream) {
		return p.refuse(w, d.shape, s.Fail.refusal(d.shape, a.model))
	}
	ans := p.charge(r, d, rec, a, s)
	if s.Cut && s.At == 0 {
		panic(http.ErrAbortHandler)
	}
	nameRequest(w.Header(), d.shape, p.id("req_"))
	if a.stream {
		return p.stream(w, r, d, rec, ans)
	}
	return p.reply(w, d, ans)
}

func (p *Provider) left(rec *Request) int {
	p.note(rec, func(r *Request) { r.Gone = true })
	return 0
}

// learn notes what was read, and is the request for the script.
func (p *Provider) learn(rec *Request, a *ask) Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec.Model, rec.Stream, rec.Tools, rec.ToolTurns = a.model, a.stream, a.tools, a.turns
	rec.Tokens = a.prompt.tokens()
	r := *rec
	r.Results = a.results
	if !p.opts.Forgetful {
		rec.Results = a.results
	}
	return r
}

// accept checks a request as far as every shape does it.
func (p *Provider) accept(r *http.Request, d door, body []byte) (*ask, *refusal) {
	if bad := p.admit(r, d.shape); bad != nil {
		return nil, bad
	}
	a, bad := d.read(p, r, body)
	if bad != nil {
		return nil, bad
	}
	if len(p.opts.Models) > 0 && !slices.Contains(p.opts.Models, a.model) {
		return nil, Failure{Status: http.StatusNotFound}.refusal(d.shape, a.model)
	}
	return a, p.tooLong(d.shape, a.prompt.tokens())
}

// admit looks at the credential: a bearer token, or Anthropic's own header.
func (p *Provider) admit(r *http.Request, s Shape) *refusal {
	key := credential(r)
	if key != "" && (p.opts.Key == "" || key == p.opts.Key) {
		return nil
	}
	bad := Failure{Status: http.StatusUnauthorized}.refusal(s, "")
	if key == "" && s == Messages {
		bad.message = "x-api-key header is required"
	}
	if key == "" && s != Messages {
		bad.code = ""
		bad.message = "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank username) if you're accessing the API from your browser and are prompted for a username and password. You can obtain an API key from https://platform.openai.com/account/api-keys."
	}
	return bad
}

func credential(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return key
}

func (p *Provider) tooLong(s Shape, tokens int) *refusal {
	most := p.opts.Window
	if most == 0 || tokens <= most {
		return nil
	}
	switch s {
	case Messages:
		return invalid("", "", "prompt is too long: %d tokens > %d maximum", tokens, most)
	case Responses:
		return invalid("input", "context_length_exceeded", "Your input exceeds the context window of this model. Please adjust your input and try again.")
	}
	return invalid("messages", "context_length_exceeded", "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", most, tokens)
}

// charge writes the request on the bill; from now on its prefix is cached.
func (p *Provider) charge(r *http.Request, d door, rec *Request, a *ask, s Step) answer {
	now := p.Now()
	scope := a.model + "\x00" + credential(r)
	h := hit{fresh: a.prompt.tokens()}
	switch {
	case p.opts.NoCache:
	case d.shape == Messages:
		h = p.cache.marked(scope, a.prompt, now, p.opts.MinCache)
	default:
		life := p.opts.TTL
		if a.life > 0 {
			life = a.life
		}
		h = p.cache.automatic(scope, a.prompt, now, life, p.opts.MinCache)
	}
	p.mu.Lock()
	p.entries = append(p.entries, &Entry{
		Fresh: h.fresh, Created: h.created, CreatedLong: h.createdLong, Cached: h.cached,
		Output: s.output(), Seq: rec.Seq, Shape: d.shape, Model: a.model,
	})
	p.mu.Unlock()
	ans := answer{Step: s, ask: a, hit: h, id: p.id(d.answer), writes: p.opts.Prices.Write > 1, created: now, number: p.id}
	if a.store {
		p.keep(ans)
	}
	return ans
}

// wait is false when the client left first.
func wait(ctx context.Context, d time.Duration) bool {
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
