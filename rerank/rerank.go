// Package rerank is a client for rerankers, which score documents by their relevance to a query. It
// supports DeepInfra's inference endpoint, APIs like Jina's /rerank (Cohere, llama.cpp, vLLM), and
// Hugging Face's text-embeddings-inference, and caches results in memory.
//
// Path through the files: rerank.go has the client; sharedcall.go lets concurrent calls with the same
// query share one request; cache.go caches results; request.go sends requests and retries; wire.go
// encodes requests, reply.go decodes replies; error.go has the errors.
//
// Invariants: no connection is made before [Client.Score], nor with an invalid [Config]. There is one score
// from 0 to 1 per document, in the order of the documents, and they rank as the reranker ranked them. The
// key is sent only to the configured URL: redirects are not followed, and errors contain neither the key
// nor parts of requests or replies. A request is at most 1 MiB and a reply at most 4 MiB; more is cut or
// rejected. A goroutine ends soon after the last call that waits for it.
//
// If the reranker fails, Score returns an [*Error]; the caller decides what to do without scores. Requests
// are retried while there is time if the server is busy (429, 502, 503, 504) or the connection failed.
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

// defaultTimeout is the timeout of a Config without one.
const defaultTimeout = 20 * time.Second

// Config is the reranker to ask, and how long its results are cached.
type Config struct {
	Shape        string        // DeepInfra, Jina or TEI
	URL          string        // the endpoint, path included; DeepInfra's ends in the name of the model
	Key          secret.Text   // resolved; DeepInfra needs one, for the others it is optional
	Model        string        // for Jina servers with several models; the other shapes do not send it
	Timeout      time.Duration // of one Score, retries included; 0 is 20 s
	CacheTTL     time.Duration // of cached results; 0 disables the cache
	CacheEntries int           // cached results; the oldest are evicted; 0 disables the cache
}

// Client asks one reranker. It is safe for concurrent use.
type Client struct {
	cfg       Config
	shape     shape
	key       string
	http      *http.Client
	configErr *Error // of an invalid Config; nil for a valid one

	mu    sync.Mutex
	cache cache
	calls map[digest]*sharedCall
}

// Result is the scores of one call.
type Result struct {
	Scores  []float64     // one per document, in their order, from 0 to 1
	Status  int           // of the last reply; 0 if nothing was sent
	Cached  bool          // from the cache; nothing was sent
	Latency time.Duration // of the reranker, retries included; 0 if Cached
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
		cache: newCache(cfg.CacheTTL, cfg.CacheEntries),
		calls: map[digest]*sharedCall{},
	}
	c.configErr = c.checkConfig()
	return c
}

// checkConfig does not quote invalid values: a URL can hold a secret, too.
func (c *Client) checkConfig() *Error {
	u, err := url.Parse(c.cfg.URL)
	switch {
	case c.shape.appendBody == nil:
		return configError("there is no reranker of that shape")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return configError("the reranker's URL is not an absolute http or https URL")
	case c.shape.needsKey && c.key == "":
		return configError("the reranker's API key is not set")
	case strings.ContainsFunc(c.key, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return configError("the reranker's API key has characters that no header can carry")
	}
	return nil
}

// Score scores each document by its relevance to the query. Blank documents are not sent and score 0, and
// a blank query is not sent at all: rerankers reject both. A server of Jina's shape may return only its
// best documents; the others score 0. Any error is an [*Error].
func (c *Client) Score(ctx context.Context, query string, docs []string) (Result, error) {
	if c.configErr != nil {
		return Result{}, c.configErr
	}
	q := newScoreQuery(query, docs)
	if len(q.docs) == 0 {
		return Result{Scores: make([]float64, len(docs))}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answer, err := c.scoreShared(ctx, q)
	if err != nil {
		return Result{}, err
	}
	answer.Scores = q.spreadScores(answer.Scores)
	return answer, nil
}
