package prunerd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/rerank"
)

// far is the reranker that a configuration says to ask.
type far struct {
	name    string // of the backend, in statistics and warnings
	client  *rerank.Client
	maxDocs int
}

// newFar is nil where nobody is to be asked. Nothing is connected to here.
func newFar(cfg Config, transport http.RoundTripper) *far {
	shared := rerank.Config{CacheTTL: time.Duration(cfg.CacheTTL) * time.Second, CacheMax: cfg.CacheMax}
	switch backend := cfg.backend(); backend {
	case DeepInfra:
		shared.Shape, shared.URL, shared.Key = rerank.DeepInfra, cfg.deepInfraURL(), cfg.DeepInfraKey
		shared.Timeout = time.Duration(cfg.TimeoutMS) * time.Millisecond
		return &far{backend, rerank.New(shared, transport), cfg.MaxDocs}
	case Rerank:
		shared.Shape, shared.URL, shared.Key, shared.Model = cfg.RerankShape, cfg.RerankURL, cfg.RerankKey, cfg.RerankModel
		shared.Timeout = time.Duration(cfg.RerankTimeoutMS) * time.Millisecond
		return &far{backend, rerank.New(shared, transport), cfg.RerankMaxDocs}
	}
	return nil
}

// opinion is what came of asking.
type opinion struct {
	backend       string
	scored, total int // lines, however many of them are asked about as one
	answer        rerank.Answer
	failed        bool
	warnings      []string
}

// ask has a reranker say which parts of a text matter for the goal, and weighs its lines by that.
// Without an answer they weigh what they did; nil means that there was nobody to ask, or nothing.
func (f *far) ask(ctx context.Context, doc *prune.Doc, j *job) *opinion {
	if f == nil || strings.TrimSpace(j.goal) == "" {
		return nil
	}
	ctx, cancel := shortened(ctx, j.limit)
	defer cancel()
	o := &opinion{backend: f.name, total: doc.Len()}
	chunks := doc.Chunks(f.maxDocs)
	texts := make([]string, len(chunks))
	for i, c := range chunks {
		texts[i] = doc.Text(c.First, c.Last)
	}
	began := time.Now()
	var err error
	if o.answer, err = f.client.Score(ctx, j.goal, texts); err != nil {
		slog.WarnContext(ctx, "the reranker failed: the local engine decides", "backend", f.name, "error", err)
		o.fail(err, time.Since(began))
		return o
	}
	doc.Blend(chunks, o.answer.Scores)
	for _, c := range chunks {
		o.scored += c.Last - c.First + 1
	}
	if o.scored < o.total {
		o.warnings = append(o.warnings, f.name+"_docs_truncated")
	}
	if o.answer.Cached {
		o.warnings = append(o.warnings, "cache_hit")
	}
	return o
}

// shortened leaves a little of a call's time for the cut that follows: a reranker that is too slow
// costs its opinion, not the result.
func shortened(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline() // start sets one
	return context.WithDeadline(ctx, end.Add(-min(limit/10, 100*time.Millisecond)))
}

// fail says in the document's words what went wrong.
func (o *opinion) fail(err error, took time.Duration) {
	o.failed, o.answer.Latency = true, took
	kind := rerank.KindHTTP
	var e *rerank.Error
	if errors.As(err, &e) {
		kind, o.answer.Status = e.Kind, e.Status
	}
	o.warnings = []string{o.backend + "_error", o.backend + "_" + kind.String() + "_error"}
}

func (o *opinion) stats(w *writer) {
	w.int(o.backend+"_latency_ms", int(o.answer.Latency.Milliseconds()))
	w.int(o.backend+"_docs_scored", o.scored)
	w.int(o.backend+"_docs_total", o.total)
	if o.answer.Status != 0 { // nobody answered
		w.int(o.backend+"_http_status", o.answer.Status)
	}
	w.flag(o.backend+"_cached", o.answer.Cached)
}
