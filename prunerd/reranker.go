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

// reranker adds the scores of the configured reranker to those of the local engine.
type reranker struct {
	name    string // of the backend, for statistics and warnings
	client  *rerank.Client
	maxDocs int
}

// newReranker returns nil for the backend heuristic. It opens no connection.
func newReranker(cfg Config, transport http.RoundTripper) *reranker {
	shared := rerank.Config{CacheTTL: time.Duration(cfg.CacheTTL) * time.Second, CacheEntries: cfg.CacheMaxEntries}
	switch backend := cfg.backend(); backend {
	case DeepInfra:
		shared.Shape, shared.URL, shared.Key = rerank.DeepInfra, cfg.deepInfraURL(), cfg.DeepInfraKey
		shared.Timeout = time.Duration(cfg.DeepInfraTimeoutMS) * time.Millisecond
		return &reranker{backend, rerank.New(shared, transport), cfg.DeepInfraMaxDocs}
	case Rerank:
		shared.Shape, shared.URL, shared.Key, shared.Model = cfg.RerankShape, cfg.RerankURL, cfg.RerankKey, cfg.RerankModel
		shared.Timeout = time.Duration(cfg.RerankTimeoutMS) * time.Millisecond
		return &reranker{backend, rerank.New(shared, transport), cfg.RerankMaxDocs}
	}
	return nil
}

// rerankOutcome is what one request to a reranker gave.
type rerankOutcome struct {
	backend                 string
	scoredLines, totalLines int
	result                  rerank.Result
	failed                  bool
	warnings                []string
}

// addScores lets the reranker score the chunks of a text and adds that to the scores of its lines. If it
// fails, the scores stay as they are. It returns nil if there is no reranker or no goal.
func (f *reranker) addScores(ctx context.Context, doc *prune.ScoredText, j *job) *rerankOutcome {
	if f == nil || strings.TrimSpace(j.goal) == "" {
		return nil
	}
	ctx, cancel := reserveTimeForCut(ctx, j.timeout)
	defer cancel()
	o := &rerankOutcome{backend: f.name, totalLines: doc.LineCount()}
	chunks := doc.Chunks(f.maxDocs)
	texts := make([]string, len(chunks))
	for i, c := range chunks {
		texts[i] = doc.Lines(c.First, c.Last)
	}
	began := time.Now()
	var err error
	if o.result, err = f.client.Score(ctx, j.goal, texts); err != nil {
		slog.WarnContext(ctx, "the reranker failed; the text is pruned by the local scores alone", "backend", f.name, "error", err)
		o.recordFailure(err, time.Since(began))
		return o
	}
	doc.AddChunkScores(chunks, o.result.Scores)
	for _, c := range chunks {
		o.scoredLines += c.Last - c.First + 1
	}
	if o.scoredLines < o.totalLines {
		o.warnings = append(o.warnings, f.name+"_docs_truncated")
	}
	if o.result.Cached {
		o.warnings = append(o.warnings, "cache_hit")
	}
	return o
}

// reserveTimeForCut shortens the deadline a little, so that a slow reranker leaves time for the cut.
func reserveTimeForCut(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline() // startPruning sets one
	return context.WithDeadline(ctx, end.Add(-min(limit/10, 100*time.Millisecond)))
}

// recordFailure translates an error into the specification's warnings.
func (o *rerankOutcome) recordFailure(err error, took time.Duration) {
	o.failed, o.result.Latency = true, took
	kind := rerank.KindHTTP
	var e *rerank.Error
	if errors.As(err, &e) {
		kind, o.result.Status = e.Kind, e.Status
	}
	o.warnings = []string{o.backend + "_error", o.backend + "_" + kind.String() + "_error"}
}

func (o *rerankOutcome) appendStats(w *jsonWriter) {
	w.intMember(o.backend+"_latency_ms", int(o.result.Latency.Milliseconds()))
	w.intMember(o.backend+"_docs_scored", o.scoredLines)
	w.intMember(o.backend+"_docs_total", o.totalLines)
	if o.result.Status != 0 {
		w.intMember(o.backend+"_http_status", o.result.Status)
	}
	w.boolMember(o.backend+"_cached", o.result.Cached)
}
