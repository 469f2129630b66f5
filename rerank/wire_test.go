package rerank

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// result is one document's, in the order in which a server lists it.
type result struct {
	index int
	score float64
}

// judge scores documents by the number they end in ("… 0.25"), as a reranker would rank them.
func judge(docs []string) []result {
	var all []result
	for i, doc := range docs {
		var score float64
		if at := strings.LastIndexByte(doc, ' '); at >= 0 {
			_, _ = fmt.Sscan(doc[at+1:], &score)
		}
		all = append(all, result{i, score})
	}
	slices.SortStableFunc(all, func(a, b result) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	return all
}

// body decodes a request as strictly as Cohere does, which answers 422 to a field it does not know.
func body(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return false
	}
	return true
}

func list(results []result, format string) string {
	var parts []string
	for _, r := range results {
		parts = append(parts, fmt.Sprintf(format, r.index, r.score))
	}
	return strings.Join(parts, ",")
}

// The wires, as their servers' documentation and sources have them.

func deepInfra(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Queries   []string `json:"queries"`
		Documents []string `json:"documents"`
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+testKey:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"detail":{"error":"User not authenticated"}}`)
		return
	case !body(w, r, &req):
		return
	case len(req.Queries) != len(req.Documents):
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"detail":{"error":"queries and documents must have the same length"}}`)
		return
	}
	scores := make([]string, len(req.Documents))
	for _, r := range judge(req.Documents) {
		scores[r.index] = fmt.Sprint(r.score)
	}
	_, _ = fmt.Fprintf(w, `{"scores":[%s],"input_tokens":42,"request_id":null,"inference_status":`+
		`{"status":"succeeded","runtime_ms":31,"cost":4.2e-07,"tokens_generated":0,"tokens_input":42,"output_length":0}}`,
		strings.Join(scores, ","))
}

type jinaRequest struct {
	Model     string   `json:"model"`
	Query     string   `json:"query"`
	Documents []string `json:"documents"`
	TopN      int      `json:"top_n"`
	Return    *bool    `json:"return_documents"`
}

func jina(w http.ResponseWriter, r *http.Request) {
	var req jinaRequest
	if body(w, r, &req) {
		_, _ = fmt.Fprintf(w, `{"model":"jina-reranker-v2-base-multilingual","object":"list","usage":{"total_tokens":815},"results":[%s]}`,
			list(judge(req.Documents), `{"index":%d,"relevance_score":%g}`))
	}
}

func cohere(w http.ResponseWriter, r *http.Request) {
	var req jinaRequest
	if !body(w, r, &req) {
		return
	}
	if req.Model == "" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"message":"invalid request: model is required"}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"id":"07734bd2","results":[%s],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`,
		list(judge(req.Documents), `{"index":%d,"relevance_score":%g}`))
}

// vllm sends the documents back, whatever it is asked.
func vllm(w http.ResponseWriter, r *http.Request) {
	var req jinaRequest
	if body(w, r, &req) {
		_, _ = fmt.Fprintf(w, `{"id":"rerank-1","model":"BAAI/bge-reranker-base","usage":{"total_tokens":56},"results":[%s]}`,
			list(judge(req.Documents), `{"index":%d,"document":{"text":"\u00e9","multi_modal":null},"relevance_score":%g}`))
	}
}

// llamaCPP answers in the order of the documents, with logits: here the judge's scores ×20-10.
func llamaCPP(w http.ResponseWriter, r *http.Request) {
	var req jinaRequest
	if !body(w, r, &req) {
		return
	}
	results := judge(req.Documents)
	slices.SortFunc(results, func(a, b result) int { return a.index - b.index })
	for i := range results {
		results[i].score = results[i].score*20 - 10
	}
	_, _ = fmt.Fprintf(w, `{"model":"m","object":"list","usage":{"prompt_tokens":74,"total_tokens":74},"results":[%s]}`,
		list(results, `{"index":%d,"relevance_score":%g}`))
}

func tei(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Query     string   `json:"query"`
		Texts     []string `json:"texts"`
		RawScores *bool    `json:"raw_scores"`
		Truncate  bool     `json:"truncate"`
	}
	switch {
	case !body(w, r, &req):
	case len(req.Texts) > 32:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error":"batch size 33 > maximum allowed batch size 32","error_type":"Validation"}`)
	case !req.Truncate || req.RawScores == nil || *req.RawScores:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	default:
		_, _ = fmt.Fprintf(w, `[%s]`, list(judge(req.Texts), `{"index":%d,"score":%g}`))
	}
}

// P11, P+2: every wire, in one table.
func TestScoreInEveryShape(t *testing.T) {
	docs := []string{"low 0.125", "high 0.875", "né à Zürich 0.5", "none 0"}
	same := []float64{0.125, 0.875, 0.5, 0}
	for _, tt := range []struct {
		name, shape, model string
		handler            http.HandlerFunc
		want               []float64
	}{
		{"deepinfra", DeepInfra, "", deepInfra, same},
		{"jina", Jina, "jina-reranker-v2-base-multilingual", jina, same},
		{"cohere", Jina, "rerank-v3.5", cohere, same},
		{"vllm", Jina, "", vllm, same},
		{"llama.cpp", Jina, "", llamaCPP, []float64{0.00055, 0.99945, 0.5, 0.000045}},
		{"tei", TEI, "", tei, same},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tt.shape, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/v1/rerank" || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s %s, %v", r.Method, r.URL.Path, r.Header)
				}
				if got := r.Header.Get("Authorization"); got != "Bearer "+testKey {
					t.Errorf("Authorization %q", got)
				}
				tt.handler(w, r)
			}, func(cfg *Config) { cfg.Model = tt.model })
			got, err := g.Score(t.Context(), "what is high?", docs)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != http.StatusOK || got.Cached || got.Latency <= 0 {
				t.Errorf("got %+v", got)
			}
			if !slices.EqualFunc(got.Scores, tt.want, near) {
				t.Errorf("scores %v, want %v", got.Scores, tt.want)
			}
		})
	}
}

func near(a, b float64) bool { return a-b < 1e-5 && b-a < 1e-5 }

// A server without a key is not sent one; a key from a file or an environment may end in a line break.
func TestKeyIsOptionalButForDeepInfra(t *testing.T) {
	for key, want := range map[string]string{"": "", " " + testKey + "\n": "Bearer " + testKey} {
		g := newRig(t, TEI, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("Authorization %q, want %q", got, want)
			}
			tei(w, r)
		}, func(cfg *Config) { cfg.Key = secret.Literal(key) })
		if _, err := g.Score(t.Context(), "q", []string{"a 1"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TEI takes 32 documents at once; the answers of all requests are one.
func TestManyDocuments(t *testing.T) {
	docs := make([]string, 75)
	for i := range docs {
		docs[i] = fmt.Sprintf("d %g", float64(i)/100)
	}
	g := newRig(t, TEI, tei, nil)
	got, err := g.Score(t.Context(), "q", docs)
	if err != nil {
		t.Fatal(err)
	}
	if n := g.calls.Load(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
	for i, s := range got.Scores {
		if !near(s, float64(i)/100) {
			t.Fatalf("document %d has score %v", i, s)
		}
	}
}

// If one of two replies has a score out of 0..1, the scores of both are logits; otherwise their order
// would be lost.
func TestOneScaleForAllRequests(t *testing.T) {
	docs := slices.Repeat([]string{"small 0.5"}, 32)
	docs = append(docs, "large 4", "negative -4")
	got, err := newRig(t, TEI, tei, nil).Score(t.Context(), "q", docs)
	if err != nil {
		t.Fatal(err)
	}
	if small, large, negative := got.Scores[0], got.Scores[32], got.Scores[33]; negative >= small || small >= large || large > 1 {
		t.Errorf("scores %v < %v < %v", negative, small, large)
	}
}

// No request is over 1 MiB, quoted and with its query once a document; texts are cut between characters.
func TestLargeDocuments(t *testing.T) {
	docs := make([]string, 70)
	for i := range docs {
		docs[i] = strings.Repeat("é\x01", 4000) // a control character is six bytes of JSON
	}
	var seen atomic.Int64
	g := newRig(t, DeepInfra, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > maxRequest {
			t.Errorf("a request of %d bytes", r.ContentLength)
		}
		var req struct {
			Queries   []string `json:"queries"`
			Documents []string `json:"documents"`
		}
		if !body(w, r, &req) {
			return
		}
		for i, doc := range req.Documents {
			if utf8.RuneCountInString(doc) != maxDoc || utf8.RuneCountInString(req.Queries[i]) != maxQuery {
				t.Error("a text of another length")
			}
		}
		seen.Add(int64(len(req.Documents)))
		_, _ = io.WriteString(w, `{"scores":[0`+strings.Repeat(",0", len(req.Documents)-1)+`]}`)
	}, nil)
	if _, err := g.Score(t.Context(), strings.Repeat("ü", 5000), docs); err != nil {
		t.Fatal(err)
	}
	if calls := g.calls.Load(); seen.Load() != 70 || calls != 2 {
		t.Errorf("%d documents in %d requests", seen.Load(), calls)
	}
}

// Bytes that are not UTF-8 have no place in JSON.
func TestFirstChars(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"éèêë", 3, "éèê"}, {"éèê", 3, "éèê"},
		{"\U0001F600\U0001F601", 1, "\U0001F600"}, {"a\xffb", 9, "a\uFFFDb"}, {"\xff\xfe\xfd", 2, "\uFFFD"},
	} {
		if got := firstChars(tt.text, tt.n); got != tt.want {
			t.Errorf("firstChars(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

// Blank documents are an error to some servers; they keep their places.
func TestBlankDocumentsAreNotSent(t *testing.T) {
	g := newRig(t, Jina, func(w http.ResponseWriter, r *http.Request) {
		var req jinaRequest
		if body(w, r, &req) && (len(req.Documents) != 2 || req.TopN != 2 || req.Return == nil || *req.Return) {
			t.Errorf("sent %+v", req)
		}
		_, _ = io.WriteString(w, `{"results":[{"index":1,"relevance_score":0.75},{"index":0,"relevance_score":0.25}]}`)
	}, nil)
	got, err := g.Score(t.Context(), "q", []string{"", "a", " \n\t", "b", ""})
	if want := []float64{0, 0.25, 0, 0.75, 0}; err != nil || !slices.Equal(got.Scores, want) {
		t.Errorf("got %v, %v; want %v", got.Scores, err, want)
	}
}

// P12: without documents or query nothing is sent.
func TestNothingToSend(t *testing.T) {
	g := newRig(t, TEI, tei, nil)
	for _, tt := range []struct {
		query string
		docs  []string
	}{{"q", nil}, {"q", []string{" ", ""}}, {" ", []string{"a"}}} {
		got, err := g.Score(t.Context(), tt.query, tt.docs)
		if err != nil || len(got.Scores) != len(tt.docs) || slices.ContainsFunc(got.Scores, func(s float64) bool { return s != 0 }) {
			t.Errorf("%q: got %+v, %v", tt.docs, got, err)
		}
	}
	if n := g.calls.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
