package rerank

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The API shapes.
const (
	DeepInfra = "deepinfra" // {"queries":[q,q],"documents":[a,b]} is answered {"scores":[x,y]}
	Jina      = "jina"      // {"query":q,"documents":[a,b]}: {"results":[{"index":1,"relevance_score":y},…]}
	TEI       = "tei"       // {"query":q,"texts":[a,b]}: [{"index":1,"score":y},…]
)

// shape is one form of the rerank API.
type shape struct {
	appendBody   func(dst []byte, r wireRequest) []byte
	needsKey     bool
	mayOmitDocs  bool // servers may return only the best documents
	repeatsQuery bool // the query is sent once per document
	maxDocs      int  // documents in one request
}

// TEI accepts 32 documents by default and rejects more (422). Cohere recommends at most 1000.
var shapes = map[string]shape{
	DeepInfra: {appendBody: deepInfraBody, needsKey: true, repeatsQuery: true, maxDocs: 512},
	Jina:      {appendBody: jinaBody, mayOmitDocs: true, maxDocs: 512},
	TEI:       {appendBody: teiBody, maxDocs: 32},
}

const (
	maxRequest   = 1 << 20 // bytes; TEI rejects 2 MB
	maxQuery     = 2000    // characters
	maxDoc       = 4000    // characters; some 1000 tokens; rerankers truncate at 512 to 8192
	bodyOverhead = 128     // bytes of a body beside its texts
)

// scoreQuery is a query and its documents that are not blank.
type scoreQuery struct {
	query     string
	docs      []string
	positions []int // index of each document among the caller's
	docCount  int
}

func newScoreQuery(query string, docs []string) scoreQuery {
	q := scoreQuery{query: firstChars(query, maxQuery), docCount: len(docs)}
	if strings.TrimSpace(q.query) == "" {
		return q
	}
	for i, doc := range docs {
		if doc = firstChars(doc, maxDoc); strings.TrimSpace(doc) != "" {
			q.docs = append(q.docs, doc)
			q.positions = append(q.positions, i)
		}
	}
	return q
}

// spreadScores returns the scores for all documents of the caller.
func (q scoreQuery) spreadScores(scores []float64) []float64 {
	all := make([]float64, q.docCount)
	for i, at := range q.positions {
		all[at] = scores[i]
	}
	return all
}

// firstChars returns the first n characters of text as valid UTF-8.
func firstChars(text string, n int) string {
	if len(text) > n {
		end := 0
		for ; n > 0 && end < len(text); n-- {
			_, size := utf8.DecodeRuneInString(text[end:])
			end += size
		}
		text = text[:end]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// wireRequest is the part of a query that is sent in one request, its texts quoted as JSON.
type wireRequest struct {
	model string
	query []byte
	docs  [][]byte
}

// splitRequests splits a query into as few requests as the shape and the size limit allow.
func (c *Client) splitRequests(q scoreQuery) []wireRequest {
	r := wireRequest{model: c.cfg.Model, query: jsonscan.AppendQuoted(nil, q.query)}
	fixed := bodyOverhead + len(r.model) + len(r.query)
	each := 1
	if c.shape.repeatsQuery {
		each += len(r.query) + 1
	}
	var all []wireRequest
	size := fixed
	for _, doc := range q.docs {
		quoted := jsonscan.AppendQuoted(nil, doc)
		if len(r.docs) == c.shape.maxDocs || len(r.docs) > 0 && size+each+len(quoted) > maxRequest {
			all = append(all, r)
			r.docs, size = nil, fixed
		}
		r.docs = append(r.docs, quoted)
		size += each + len(quoted)
	}
	return append(all, r)
}

// deepInfraBody repeats the query for each document: DeepInfra scores pairs.
func deepInfraBody(dst []byte, r wireRequest) []byte {
	dst = append(dst, `{"queries":[`...)
	for i := range r.docs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, r.query...)
	}
	dst = append(dst, `],"documents":`...)
	dst = appendList(dst, r.docs)
	return append(dst, '}')
}

// jinaBody asks for the scores of all documents without their texts. Servers with several models need
// the model's name; others ignore it.
func jinaBody(dst []byte, r wireRequest) []byte {
	dst = append(dst, '{')
	if r.model != "" {
		dst = append(dst, `"model":`...)
		dst = jsonscan.AppendQuoted(dst, strings.ToValidUTF8(r.model, "\uFFFD"))
		dst = append(dst, ',')
	}
	dst = append(dst, `"query":`...)
	dst = append(dst, r.query...)
	dst = append(dst, `,"documents":`...)
	dst = appendList(dst, r.docs)
	dst = append(dst, `,"top_n":`...)
	dst = strconv.AppendInt(dst, int64(len(r.docs)), 10)
	return append(dst, `,"return_documents":false}`...)
}

// teiBody lets TEI truncate documents that are too long for its model; otherwise it rejects them.
func teiBody(dst []byte, r wireRequest) []byte {
	dst = append(dst, `{"query":`...)
	dst = append(dst, r.query...)
	dst = append(dst, `,"texts":`...)
	dst = appendList(dst, r.docs)
	return append(dst, `,"raw_scores":false,"truncate":true}`...)
}

func appendList(dst []byte, quoted [][]byte) []byte {
	dst = append(dst, '[')
	for i, text := range quoted {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, text...)
	}
	return append(dst, ']')
}
