// Package rerank asks a reranker how much each of some documents has to do with a query. It speaks
// the wires of DeepInfra's inference endpoint, of everything shaped like Jina's /rerank (Cohere,
// llama.cpp, vLLM), and of Hugging Face's text-embeddings-inference, and it keeps answers for a
// while in memory.
//
// Path through the files: rerank.go holds the client and what it gives; shared.go lets calls that
// ask the same share one answer; cache.go keeps answers; ask.go makes the requests, and makes them
// again; wire.go is what is sent, in each shape; reply.go what comes back; fail.go how it fails.
//
// Invariants: nothing is connected to before [Client.Score], nor then without a valid [Config].
// Scores are in the order of the documents, one each, from 0 to 1, and never in another order than
// the reranker's own. The key goes to the configured URL alone: redirects are not followed, and no
// error holds the key, nor anything of what was sent or of what came back. A request is at most
// 1 MiB and a reply at most 4 MiB; what is longer is cut or refused. No goroutine outlives the
// calls that wait for it by more than it takes to hang up.
//
// When the reranker fails, Score does, with an [Error] that says how; what to do without scores is
// for the caller to decide. It is asked again while there is time if it was busy (429, 502, 503,
// 504), or if the connection was lost; every other answer is final.
package rerank

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// defaultTimeout is for a Config that has none.
const defaultTimeout = 20 * time.Second

// Config says which reranker is asked, and how long its answers are good for.
type Config struct {
	Shape    string        // DeepInfra, Jina or TEI
	URL      string        // the endpoint, path included; DeepInfra's ends in the name of the model
	Key      secret.Text   // resolved; DeepInfra wants one, the others may do without
	Model    string        // for Jina, where a server has several; the other shapes do not send it
	Timeout  time.Duration // of one Score, retries included; 0 is 20 s
	CacheTTL time.Duration // how long an answer is kept; 0 keeps none
	CacheMax int           // how many are kept, the oldest make room; 0 keeps none
}

// Client asks one reranker. It is safe for concurrent use.
type Client struct {
	cfg   Config
	shape shape
	key   string
	http  *http.Client
	wrong *Error // what is wrong with the Config

	mu      sync.Mutex
	kept    cache
	flights map[digest]*flight
}

// Answer is what the reranker said.
type Answer struct {
	Scores  []float64     // one a document, in their order, each from 0 to 1
	Status  int           // of the last reply; 0 when there was nothing to ask
	Cached  bool          // the answer was known already, and nobody was asked
	Latency time.Duration // how long the reranker took, retries included; 0 when Cached
}

// New makes a client. It connects to nothing; a nil transport is [http.DefaultTransport].
func New(cfg Config, transport http.RoundTripper) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	c := &Client{
		cfg:   cfg,
		shape: shapes[cfg.Shape],
		key:   strings.TrimSpace(cfg.Key.Reveal()),
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		kept:    newCache(cfg.CacheTTL, cfg.CacheMax),
		flights: map[digest]*flight{},
	}
	c.wrong = c.check()
	return c
}

// check never repeats a value that it refuses: a URL can hold a secret too.
func (c *Client) check() *Error {
	u, err := url.Parse(c.cfg.URL)
	switch {
	case c.shape.body == nil:
		return misconfigured("there is no reranker of that shape")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return misconfigured("the reranker's URL is not an absolute http or https URL")
	case c.shape.needsKey && c.key == "":
		return misconfigured("the reranker's API key is not set")
	case strings.ContainsFunc(c.key, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return misconfigured("the reranker's API key has characters that no header can carry")
	}
	return nil
}

// Score asks how much each document has to do with the query. The order of the scores is the
// documents'. A blank document is not sent and has score 0, and nobody is asked about a blank
// query: to a reranker both are errors. A server of Jina's shape may answer with its best documents
// alone; the others have score 0 then. Any error is an [*Error].
func (c *Client) Score(ctx context.Context, query string, docs []string) (Answer, error) {
	if c.wrong != nil {
		return Answer{}, c.wrong
	}
	q := newQuestion(query, docs)
	if len(q.docs) == 0 {
		return Answer{Scores: make([]float64, len(docs))}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answer, err := c.share(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	answer.Scores = q.spread(answer.Scores)
	return answer, nil
}
