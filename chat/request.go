package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// call is one request of a client.
type call struct {
	endpoint
	plan           *activeConfig
	caller         auth.Caller
	model          string
	method         string
	query          string           // as the client sent it, without credentials
	hostPath       string           // the path at the host of routed; "": UpstreamPath after its version
	header         http.Header      // forwarded to every provider
	clientKeys     http.Header      // the client's own credentials
	memory         *membudget.Scope // charged for what the request holds
	body           []byte
	upload         *upload           // the body, if it is forwarded unread; nil: body
	edits          []jsonscan.Edit   // applied to body when it is sent
	dialogue       *history.Dialogue // nil if it cannot be read or is not needed
	shrunk         masking.Result    // what the shrinker did
	routed         *provider         // the provider of its model
	candidates     []*provider       // providers to ask, in order
	lastAsked      *provider         // the provider asked last
	readback       *readbackState    // nil if the model cannot read back through the proxy
	round          int               // 0 for the first; later rounds answer recover_text
	previousOutput int64             // output tokens of the previous round
	spending       *spending         // nil if the tenant has no budget
	attempts       int
	started        time.Time
}

// handleEndpoint serves the requests of one path.
func (px *Proxy) handleEndpoint(p *activeConfig, e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		px.serveCall(w, r, &call{endpoint: e, plan: p}, px.serveRequest)
	}
}

// serveCall counts and logs a request and answers it if serve fails. serve returns the label of the metric, ""
// for the kind of its error. An error other than errReplyStarted means that nothing was answered yet.
func (px *Proxy) serveCall(w http.ResponseWriter, r *http.Request, c *call, serve func(http.ResponseWriter, *http.Request, *call) (string, error)) {
	done := px.deps.Meter.StartLLMRequest()
	c.method, c.started = r.Method, time.Now()
	result := "internal" // if it panics
	defer func() {
		name := ""
		if c.lastAsked != nil {
			name = c.lastAsked.Name
			front.AddLogAttrs(r.Context(), slog.String("provider", name), slog.String("model", fault.Clip(c.model)), slog.Int("tries", c.attempts))
		}
		done(name, result)
	}()
	label, err := serve(w, r, c)
	if result = label; result == "" {
		result = fault.KindOf(err).String()
	}
	switch {
	case errors.Is(err, errReplyStarted):
		front.AddLogAttrs(r.Context(), slog.String("fault", result), slog.String("error", fault.Clip(err.Error())))
		panic(http.ErrAbortHandler) // half a reply must not look whole
	case err != nil:
		px.wires.refuse(w, r, err)
	}
}

// admitCall finds the caller of a request and admits it. The caller of admitCall must call release.
func (px *Proxy) admitCall(ctx context.Context, c *call) (release func(), err error) {
	c.memory = membudget.FromContext(ctx)
	if c.caller, err = auth.CallerFrom(ctx); err != nil {
		return nil, err
	}
	return px.admit(ctx, c.plan, c.caller)
}

// serveRequest handles one request: read it, find its provider, shrink it, ask the provider, relay the reply.
func (px *Proxy) serveRequest(w http.ResponseWriter, r *http.Request, c *call) (_ string, err error) {
	ctx := r.Context()
	leave, err := px.admitCall(ctx, c)
	if err != nil {
		return "", err
	}
	defer leave()
	if err := px.readRequest(w, r, c); err != nil {
		return "", err
	}
	pass, err := c.authorize(ctx, access.Target{Method: access.MethodModel, Model: c.model})
	if err != nil {
		return "", err
	}
	defer func() { endPass(pass, err) }()
	if c.Conversation {
		c.readback = px.offerTool(ctx, c)
		if err := px.shrinkBody(ctx, c); err != nil {
			return "", err
		}
	}
	if err := px.reserveBudget(ctx, w, c, 0); err != nil {
		return "", err
	}
	defer c.settleBudget()
	rep, err := px.askProviders(ctx, c)
	if err != nil {
		return "", err
	}
	defer rep.close()
	c.recordSize(pass, rep)
	c.releaseBody()
	px.deps.Meter.ObserveFirstByte(rep.provider.Name, time.Since(c.started))
	if c.readback != nil && isMergeable(rep) {
		return px.relayRounds(ctx, w, c, rep)
	}
	return px.relayAndCharge(ctx, w, c, rep)
}

// recordSize records the size of the request, as it came and as the provider got it.
func (c *call) recordSize(pass *gate.Pass, rep *reply) {
	pass.Reply(len(c.body), jsonscan.SplicedLen(c.body, c.edits), rep.StatusCode/100 != 2)
}

// endPass ends the pass of a request and records why it failed.
func endPass(pass *gate.Pass, err error) {
	if err != nil {
		pass.Fail(err)
	}
	pass.Done()
}

// releaseBody frees the body once the provider has answered, unless the model may read back: the request is
// not sent again, and a stream may be long.
func (c *call) releaseBody() {
	if c.readback == nil {
		c.memory.Free(int64(len(c.body)))
		c.dialogue = nil
	}
	c.body, c.edits = nil, nil
}

// shrinkBody computes the edits of the body.
func (px *Proxy) shrinkBody(ctx context.Context, c *call) (err error) {
	to := c.routed
	dialogue := c.dialogue
	if c.readback != nil {
		dialogue, err = c.readDialogue("offered") // nil if it cannot be read: then nothing is masked
		if fault.KindOf(err) == fault.Full {
			return err
		}
	}
	price := px.pricesFor(ctx, to, c.model)
	c.edits, c.shrunk = px.runShrinker(ctx, masking.Request{
		Tenant: c.caller.Tenant(), Scope: c.plan.Gate.SubjectScope(c.caller), Codec: c.codec, Model: c.model, Provider: to.Name,
		Policy: c.plan.Chat.ObservationMasking.Schema1, NewResults: c.plan.Chat.ObservationMasking.NewResults, CachePrices: price.cache, Price: price.price,
		Body: c.body, Dialogue: dialogue,
	}, c.plan.conversations)
	masked := 0
	for _, cut := range c.shrunk.Cuts {
		if !cut.AtHub {
			masked += cut.Tokens
		}
	}
	px.deps.Meter.CountModelRequest(masked)
	return nil
}

// readRequest reads the request and finds its provider. A compressed body is decoded, and forwarded decoded.
func (px *Proxy) readRequest(w http.ResponseWriter, r *http.Request, c *call) (err error) {
	if c.body, err = readBody(w, r, int64(c.plan.HTTP.MaxRequestBytes)); err != nil {
		return err
	}
	if c.model, c.dialogue, err = px.readModelAndDialogue(c); err != nil {
		return err
	}
	c.header, c.clientKeys, c.query = c.plan.splitCredentials(r, c.codec.Wire().Vendor)
	if c.routed == nil {
		if c.routed, err = c.plan.findProvider(APIKind(c.codec.Wire().Vendor.Kind()), c.model); err != nil {
			return err
		}
	}
	c.candidates = append([]*provider{c.routed}, c.routed.fallbacks...)
	return nil
}

// relayAndCharge relays the reply and records its cost.
func (px *Proxy) relayAndCharge(ctx context.Context, w http.ResponseWriter, c *call, rep *reply) (string, error) {
	watch := newObserver(c.endpoint, rep.Response)
	c.spending.startReply(rep)
	err := px.relayReply(ctx, w, c, rep, watch)
	px.chargeReply(ctx, c, rep, watch, err)
	if err != nil {
		return brokenResultLabel(err), err
	}
	return resultLabel(rep.StatusCode), nil
}

// chargeReply records what a reply cost, by what it says itself. Budgets also count what it does not say.
func (px *Proxy) chargeReply(ctx context.Context, c *call, rep *reply, watch *observer, failed error) {
	used, model, ok := watch.usage()
	if ok {
		px.recordUsage(ctx, c, rep.provider, model, used)
	}
	if !ok || failed != nil {
		c.spending.addUnknown(rep, used)
	}
}

// resultLabel is the metric label of a reply that was relayed to its end.
func resultLabel(status int) string {
	switch {
	case status/100 == 2:
		return "ok"
	case status == http.StatusTooManyRequests:
		return "rate_limited"
	case status/100 == 4:
		return "rejected"
	}
	return "failed"
}

// maxDepth is the deepest nesting of a request whose conversation is read; a deeper one is sent unchanged.
const maxDepth = 256

// Shrinker decides what to replace in a request's body: [masking.Masker.Shrink].
type Shrinker func(ctx context.Context, o masking.Request) masking.Result

// runShrinker calls the shrinker. If it panics, or its edits are not valid, the request is sent unchanged.
func (px *Proxy) runShrinker(ctx context.Context, o masking.Request, conversations *history.ConversationCache) (edits []jsonscan.Edit, done masking.Result) {
	if px.deps.Shrink == nil {
		return nil, masking.Result{}
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "shrinking a request panicked; it is sent unchanged", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			edits, done = nil, masking.Result{}
		}
	}()
	done = px.deps.Shrink(ctx, o)
	if !areOrdered(done.Edits, len(o.Body)) {
		slog.ErrorContext(ctx, "the edits of a request are out of order; it is sent unchanged", "edits", len(done.Edits))
		return nil, masking.Result{}
	}
	conversations.Put(o.Dialogue) // not after a panic: what was found out may be wrong
	return done.Edits, done
}

func areOrdered(edits []jsonscan.Edit, size int) bool {
	at := 0
	for _, e := range edits {
		if e.Start < at || e.End < e.Start {
			return false
		}
		at = e.End
	}
	return at <= size
}
