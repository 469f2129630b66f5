package prunerd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/state/memory"
)

// fakeReranker answers in any shape and prefers documents with a word in them.
type fakeReranker struct {
	*httptest.Server
	likes string
	asked atomic.Int64
	docs  atomic.Int64 // in the last request
	auth  atomic.Value
	fail  func(w http.ResponseWriter, r *http.Request) // instead of an answer
}

func newFakeReranker(t *testing.T, likes string) *fakeReranker {
	t.Helper()
	r := &fakeReranker{likes: likes}
	r.Server = httptest.NewServer(http.HandlerFunc(r.answer))
	t.Cleanup(r.Close)
	return r
}

func (r *fakeReranker) answer(w http.ResponseWriter, req *http.Request) {
	r.asked.Add(1)
	r.auth.Store(req.Header.Get("Authorization"))
	var q struct{ Documents, Texts []string }
	body, _ := io.ReadAll(req.Body)
	_ = json.Unmarshal(body, &q)
	docs := append(q.Documents, q.Texts...)
	r.docs.Store(int64(len(docs)))
	if r.fail != nil {
		r.fail(w, req)
		return
	}
	scores, results := []float64{}, []map[string]any{}
	for i, d := range docs {
		score := 0.01
		if strings.Contains(d, r.likes) {
			score = 0.99
		}
		scores = append(scores, score)
		results = append(results, map[string]any{"index": i, "relevance_score": score, "score": score})
	}
	var reply any = map[string]any{"scores": scores}
	switch {
	case strings.HasSuffix(req.URL.Path, "/jina"):
		reply = map[string]any{"results": results}
	case strings.HasSuffix(req.URL.Path, "/tei"):
		reply = results
	}
	_ = json.NewEncoder(w).Encode(reply)
}

// with starts a server that uses r.
func (r *fakeReranker) with(t *testing.T, mend func(*Config)) *Server {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return over(t, &failingStore{Driver: memory.New()}, func(c *Config) {
		c.Backend, c.DeepInfraURL, c.DeepInfraKey = "deepinfra", r.URL, secret.Literal("sk-canary")
		if mend != nil {
			mend(c)
		}
	}, transport)
}

// the number of line k of a long text of no words that the goal has; only a reranker can find it.
func hidden(n, k int) string {
	return strings.Replace(noise(n, k), "the quarterly budget of the lighthouse was doubled", "Leuchtturm Haushalt verdoppelt im vierten Quartal", 1)
}

// P11: a reranker's scores count, within the same bounds, and the statistics report them.
func TestP11DeepInfra(t *testing.T) {
	far := newFakeReranker(t, "Leuchtturm")
	s := far.with(t, func(c *Config) { c.Backend = "cloud" })
	text := hidden(400, 300)
	d := s.mustPrune(t, text, lighthouse, "docs", usual)
	if !strings.Contains(d.Text, "Leuchtturm") {
		t.Error("the reranker's scores changed nothing")
	}
	if n := d.Stats["pruned_lines"].(float64); n > 320 || n == 0 {
		t.Errorf("%v lines pruned", n)
	}
	for key, want := range map[string]any{
		"backend": "deepinfra", "used_fallback": false, "deepinfra_docs_scored": 400., "deepinfra_docs_total": 400.,
		"deepinfra_http_status": 200., "deepinfra_cached": false,
		"tokens_saved_est": d.Stats["tokens_est_before"].(float64) - d.Stats["tokens_est_after"].(float64),
	} {
		if d.Stats[key] != want {
			t.Errorf("stats.%s is %v, want %v", key, d.Stats[key], want)
		}
	}
	if cost := d.Stats["cost_estimated_usd"].(float64); cost <= 0 || cost > 1 {
		t.Errorf("cost %v", cost)
	}
	if _, ok := d.Stats["deepinfra_latency_ms"].(float64); !ok || len(d.Warnings) != 0 {
		t.Errorf("%v, %v", d.Stats, d.Warnings)
	}
	if far.auth.Load() != "Bearer sk-canary" || far.asked.Load() != 1 {
		t.Errorf("asked %d times, with %q", far.asked.Load(), far.auth.Load())
	}

	again := s.mustPrune(t, text, lighthouse, "docs", usual)
	if far.asked.Load() != 1 || !reflect.DeepEqual(again.Warnings, []string{"cache_hit"}) || again.Stats["deepinfra_cached"] != true ||
		again.Stats["deepinfra_latency_ms"] != 0. || again.Stats["deepinfra_http_status"] != 200. || again.Text != d.Text {
		t.Errorf("again: asked %d times, %v, %v", far.asked.Load(), again.Warnings, again.Stats)
	}
	// Other bounds for the same text and goal are no other question.
	o := usual
	o.Ratio = 0.3
	if s.mustPrune(t, text, lighthouse, "docs", o); far.asked.Load() != 1 {
		t.Error("asked again for other bounds")
	}
}

// P11: of a text with too many chunks the best are sent; a warning says so, and the text is pruned.
func TestP11MoreThanMaxDocs(t *testing.T) {
	far := newFakeReranker(t, "lighthouse")
	s := far.with(t, func(c *Config) { c.DeepInfraMaxDocs = 4 })
	text := noise(2000, 1700)
	d := s.mustPrune(t, text, lighthouse, "docs", usual)
	scored, total := d.Stats["deepinfra_docs_scored"].(float64), d.Stats["deepinfra_docs_total"].(float64)
	if far.docs.Load() > 4 || total != 2000 || scored > 80 || scored < 8 || !reflect.DeepEqual(d.Warnings, []string{"deepinfra_docs_truncated"}) {
		t.Errorf("%d docs, %v of %v lines, %v", far.docs.Load(), scored, total, d.Warnings)
	}
	if n := d.Stats["pruned_lines"].(float64); n > 1600 || n < 1000 || !strings.Contains(d.Text, "lighthouse") || d.Stats["used_fallback"] != false {
		t.Errorf("%v", d.Stats)
	}
}

// P11: if the reranker fails in any way, the local engine decides, and the result says what failed.
func TestP11FailuresFallBack(t *testing.T) {
	text := noise(200, 77)
	local, _ := open(t, nil)
	want := local.mustPrune(t, text, lighthouse, "docs", usual)
	status := func(n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
	}
	says := func(body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	for name, tt := range map[string]struct {
		fail   func(http.ResponseWriter, *http.Request)
		mend   func(*Config)
		code   string
		status any
	}{
		"401":        {fail: status(401), code: "deepinfra_http_error", status: 401.},
		"429":        {fail: status(429), code: "deepinfra_http_error", status: 429.},
		"500":        {fail: status(500), code: "deepinfra_http_error", status: 500.},
		"no JSON":    {fail: says("<html>"), code: "deepinfra_parse_error", status: 200.},
		"other JSON": {fail: says(`{"scores":[1]}`), code: "deepinfra_parse_error", status: 200.},
		"empty":      {fail: says(``), code: "deepinfra_parse_error", status: 200.},
		"timeout": {fail: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, mend: func(c *Config) { c.DeepInfraTimeoutMS = 50 },
			code: "deepinfra_http_error"},
		"refused": {mend: func(c *Config) { c.DeepInfraURL = "http://127.0.0.1:1/" }, code: "deepinfra_http_error"},
		"no key":  {mend: func(c *Config) { c.DeepInfraKey = secret.Text{} }, code: "deepinfra_config_error"},
	} {
		t.Run(name, func(t *testing.T) {
			far := newFakeReranker(t, "x")
			far.fail = tt.fail
			s := far.with(t, func(c *Config) {
				c.DeepInfraTimeoutMS = 500 // no long retries
				if tt.mend != nil {
					tt.mend(c)
				}
			})
			d := s.mustPrune(t, text, lighthouse, "docs", usual)
			if !reflect.DeepEqual(d.Warnings, []string{"deepinfra_error", tt.code}) || d.Stats["used_fallback"] != true || d.Stats["backend"] != "deepinfra" {
				t.Errorf("%v, %v", d.Warnings, d.Stats)
			}
			if d.Stats["deepinfra_http_status"] != tt.status || d.Stats["deepinfra_docs_scored"] != 0. || d.Stats["deepinfra_docs_total"] != 200. {
				t.Errorf("%v", d.Stats)
			}
			if d.Text != want.Text || fmt.Sprint(d.Annotations) != fmt.Sprint(want.Annotations) || len(d.Annotations) == 0 {
				t.Error("not what the local engine cuts")
			}
			if name == "no key" && far.asked.Load() != 0 {
				t.Error("asked without a key")
			}
		})
	}
}

// P7, P11: the call's timeout limits the reranker, too, and leaves time for the cut.
func TestP11CallTimeoutLimitsTheReranker(t *testing.T) {
	far := newFakeReranker(t, "x")
	far.fail = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	s := far.with(t, nil)
	o := usual
	o.Timeout = 400
	began := time.Now()
	d := s.mustPrune(t, noise(200, 77), lighthouse, "docs", o)
	if !reflect.DeepEqual(d.Warnings, []string{"deepinfra_error", "deepinfra_http_error"}) || len(d.Annotations) == 0 {
		t.Errorf("%v, %d annotations", d.Warnings, len(d.Annotations))
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("answered after %s", took)
	}
}

// P+2: a reranker of one's own, in both shapes, with the same statistics under its own name.
func TestPPlus2Rerank(t *testing.T) {
	for _, shape := range []string{"jina", "tei"} {
		far := newFakeReranker(t, "Leuchtturm")
		own := func(c *Config) {
			c.Backend, c.RerankShape, c.RerankURL, c.RerankKey = "rerank", shape, far.URL+"/"+shape, secret.Literal("own")
			c.RerankTimeoutMS = 500
		}
		s := far.with(t, own)
		d := s.mustPrune(t, hidden(400, 300), lighthouse, "docs", usual)
		if d.Stats["backend"] != "rerank" || d.Stats["rerank_docs_scored"] != 400. || d.Stats["rerank_http_status"] != 200. || d.Stats["rerank_cached"] != false ||
			d.Stats["deepinfra_docs_total"] != nil || !strings.Contains(d.Text, "Leuchtturm") || far.auth.Load() != "Bearer own" {
			t.Errorf("%s: %v %v", shape, d.Stats, far.auth.Load())
		}
		far.fail = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
		d = s.mustPrune(t, hidden(401, 300), lighthouse, "docs", usual)
		if !reflect.DeepEqual(d.Warnings, []string{"rerank_error", "rerank_http_error"}) || d.Stats["rerank_http_status"] != 404. || d.Stats["used_fallback"] != true {
			t.Errorf("%s: %v %v", shape, d.Warnings, d.Stats)
		}
	}
}

// P12: the backend heuristic makes no connection, whatever else is configured; nor does any backend
// without a goal.
func TestP12Local(t *testing.T) {
	far := newFakeReranker(t, "x")
	s := far.with(t, func(c *Config) { c.Backend, c.RerankURL = "heuristic", far.URL })
	for _, kind := range []string{"code", "logs", "docs"} {
		s.mustPrune(t, noise(200, 77), lighthouse, kind, usual)
	}
	if d := far.with(t, nil).mustPrune(t, noise(200, 77), " \n", "docs", usual); len(d.Warnings) != 0 || d.Stats["used_fallback"] != false {
		t.Errorf("%v, %v", d.Warnings, d.Stats)
	}
	if far.asked.Load() != 0 {
		t.Errorf("asked %d times", far.asked.Load())
	}
}

// A reload changes the reranker from the next call on; an unchanged one keeps its cache.
func TestApply(t *testing.T) {
	far := newFakeReranker(t, "x")
	s := far.with(t, nil)
	text := noise(200, 77)
	s.mustPrune(t, text, lighthouse, "docs", usual)
	s.Apply(s.plan.Load().Config)
	if d := s.mustPrune(t, text, lighthouse, "docs", usual); far.asked.Load() != 1 || len(d.Warnings) != 1 {
		t.Errorf("a reload without a change forgot the cache: %v", d.Warnings)
	}
	cfg := Default()
	s.Apply(cfg)
	if d := s.mustPrune(t, text, lighthouse, "docs", usual); d.Stats["backend"] != "heuristic" || far.asked.Load() != 1 {
		t.Errorf("%v", d.Stats)
	}
	cfg.MaxInputChars = 5
	s.Apply(cfg)
	isWhole(t, s, s.mustPrune(t, text, lighthouse, "docs", usual), text, "input_too_large")
}
