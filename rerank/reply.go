package rerank

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// maxDepth is far deeper than any reply.
const maxDepth = 64

// listKeys are the members with the list of scores: "scores" for DeepInfra, "results" for Jina, "data" for
// some servers like Jina. TEI's reply is the list itself.
var listKeys = [...]string{"scores", "results", "data"}

var (
	errNoList     = errors.New("there is no list of scores in it")
	errTwoLists   = errors.New("there is more than one list of scores in it")
	errMixed      = errors.New("its list mixes numbers and results")
	errNoIndex    = errors.New("a result has no index")
	errNumber     = errors.New("a score is not a finite number")
	errDuplicate  = errors.New("a document has two scores")
	errUnknownDoc = errors.New("there is a score for a document that was not sent")
)

// missing is the score of a document that the reply leaves out.
var missing = math.NaN()

func isMissing(score float64) bool { return math.IsNaN(score) }

// parseReply reads the scores of n documents. The list is either n numbers in the order of the documents,
// or results with the index of their document, in any order; servers answer with one or the other
// whatever the request was. Only a list of results may leave documents out, if partial is set, but not all.
func parseReply(body []byte, n int, partial bool) ([]float64, error) {
	list, err := findScoreList(body)
	if err != nil {
		return nil, err
	}
	scores := make([]float64, n)
	for i := range scores {
		scores[i] = missing
	}
	count, numbers := 0, 0
	err = jsonscan.EachElement(body, list, func(span jsonscan.Span) error {
		if body[span.Start] != '{' {
			numbers++
		}
		at, score, err := parseEntry(body, span, count)
		if err != nil {
			return err
		}
		count++
		return setScore(scores, at, score)
	})
	switch {
	case err != nil:
		return nil, err
	case numbers > 0 && numbers < count:
		return nil, errMixed
	case count < n && (numbers > 0 || !partial || count == 0):
		return nil, fmt.Errorf("it has %d scores for %d documents", count, n)
	}
	return scores, nil
}

func setScore(scores []float64, at int, score float64) error {
	switch {
	case at < 0 || at >= len(scores):
		return errUnknownDoc
	case !isMissing(scores[at]):
		return errDuplicate
	}
	scores[at] = score
	return nil
}

// findScoreList validates the body and finds the list of scores.
func findScoreList(body []byte) (jsonscan.Span, error) {
	s := jsonscan.New(body, maxDepth)
	whole, err := s.Skip()
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return whole, fmt.Errorf("not JSON: %w", err)
	}
	if body[whole.Start] == '[' {
		return whole, nil
	}
	fields, err := jsonscan.ReadFields(body, whole)
	if err != nil {
		return whole, err
	}
	var lists []jsonscan.Span
	for _, key := range listKeys {
		if f, ok := fields.Field(key); ok && body[f.Value.Start] == '[' {
			lists = append(lists, f.Value)
		}
	}
	switch len(lists) {
	case 0:
		return whole, errNoList
	case 1:
		return lists[0], nil
	}
	return whole, errTwoLists
}

// parseEntry reads a result, or a number: the score of the next document.
func parseEntry(body []byte, span jsonscan.Span, next int) (at int, score float64, err error) {
	if body[span.Start] == '{' {
		return parseResult(body, span)
	}
	score, err = parseScore(span.Of(body))
	return next, score, err
}

func parseResult(body []byte, span jsonscan.Span) (at int, score float64, err error) {
	fields, err := jsonscan.ReadFields(body, span)
	if err != nil {
		return 0, 0, err
	}
	index, _ := fields.Get("index")
	if at, err = strconv.Atoi(string(index)); err != nil {
		return 0, 0, errNoIndex
	}
	raw, ok := fields.Get("relevance_score")
	if !ok {
		raw, _ = fields.Get("score")
	}
	score, err = parseScore(raw)
	return at, score, err
}

// parseScore reads a JSON number; ParseFloat alone would accept more, such as Infinity.
func parseScore(raw []byte) (float64, error) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, errNumber
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, errNumber
	}
	return f, nil
}

// tolerance is how far a probability may be out of range by rounding.
const tolerance = 1e-3

// normalize maps the scores of one query to 0..1, in place. Most servers return probabilities, which stay
// as they are; llama.cpp, and models without a classification head, return logits or similarities, which
// go through the logistic function. One score out of range means that all are logits: one rule for all
// scores keeps their order. Missing scores become 0.
func normalize(scores []float64) {
	logits := false
	for _, s := range scores {
		logits = logits || s < -tolerance || s > 1+tolerance // false for NaN
	}
	for i, s := range scores {
		switch {
		case isMissing(s):
			scores[i] = 0
		case logits:
			scores[i] = 1 / (1 + math.Exp(-s))
		default:
			scores[i] = min(max(s, 0), 1)
		}
	}
}
