package rerank

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The shapes of Config.
const (
	DeepInfra = "deepinfra" // {"queries":[q,q],"documents":[a,b]} is answered {"scores":[x,y]}
	Jina      = "jina"      // {"query":q,"documents":[a,b]}: {"results":[{"index":1,"relevance_score":y},…]}
	TEI       = "tei"       // {"query":q,"texts":[a,b]}: [{"index":1,"score":y},…]
)

// shape is one way to put the question.
type shape struct {
	body     func(dst []byte, r request) []byte
	needsKey bool
	partial  bool // servers of this shape may answer with the best documents alone
	paired   bool // the query is sent once a document
	most     int  // documents in one request
}

// TEI takes 32 documents unless it is started otherwise, and refuses one more (422). Cohere
// recommends at most 1000; nothing that we ask comes near.
var shapes = map[string]shape{
	DeepInfra: {body: deepInfraBody, needsKey: true, paired: true, most: 512},
	Jina:      {body: jinaBody, partial: true, most: 512},
	TEI:       {body: teiBody, most: 32},
}

const (
	maxRequest = 1 << 20 // bytes; TEI refuses 2 MB
	maxQuery   = 2000    // characters
	maxDoc     = 4000    // characters; some 1000 tokens, and rerankers cut at 512 to 8192
	frame      = 128     // bytes of a body besides its texts
)

// question is a query and the documents that can be asked about.
type question struct {
	query string
	docs  []string
	at    []int // where each document stands among those of the caller
	total int
}

func newQuestion(query string, docs []string) question {
	q := question{query: clip(query, maxQuery), total: len(docs)}
	if strings.TrimSpace(q.query) == "" {
		return q
	}
	for i, doc := range docs {
		if doc = clip(doc, maxDoc); strings.TrimSpace(doc) != "" {
			q.docs = append(q.docs, doc)
			q.at = append(q.at, i)
		}
	}
	return q
}

// spread puts scores at the places of their documents.
func (q question) spread(scores []float64) []float64 {
	all := make([]float64, q.total)
	for i, at := range q.at {
		all[at] = scores[i]
	}
	return all
}

// clip is the first n characters of text, as UTF-8 that JSON can carry.
func clip(text string, n int) string {
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

// request is the part of a question that is sent at once, its texts quoted as JSON.
type request struct {
	model string
	query []byte
	docs  [][]byte
}

// requests cuts a question into as few requests as its shape and size allow.
func (c *Client) requests(q question) []request {
	r := request{model: c.cfg.Model, query: jsonscan.AppendString(nil, q.query)}
	fixed := frame + len(r.model) + len(r.query)
	each := 1
	if c.shape.paired {
		each += len(r.query) + 1
	}
	var all []request
	size := fixed
	for _, doc := range q.docs {
		quoted := jsonscan.AppendString(nil, doc)
		if len(r.docs) == c.shape.most || len(r.docs) > 0 && size+each+len(quoted) > maxRequest {
			all = append(all, r)
			r.docs, size = nil, fixed
		}
		r.docs = append(r.docs, quoted)
		size += each + len(quoted)
	}
	return append(all, r)
}

// deepInfraBody pairs each document with its query: DeepInfra scores pairs.
func deepInfraBody(dst []byte, r request) []byte {
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

// jinaBody asks for every document, and for none of their texts. Servers that know several models
// want one to be named; those that have one ignore it.
func jinaBody(dst []byte, r request) []byte {
	dst = append(dst, '{')
	if r.model != "" {
		dst = append(dst, `"model":`...)
		dst = jsonscan.AppendString(dst, strings.ToValidUTF8(r.model, "\uFFFD"))
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

// teiBody has TEI cut what is too long for its model, which it would refuse otherwise.
func teiBody(dst []byte, r request) []byte {
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
