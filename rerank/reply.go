package rerank

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// maxDepth is far deeper than any reply goes.
const maxDepth = 64

// Where replies have their list: DeepInfra in scores, Jina in results, Jina's imitators in data
// too. TEI's is the list.
var listKeys = [...]string{"scores", "results", "data"}

var (
	errNoList  = errors.New("there is no list of scores in it")
	errTwo     = errors.New("there is more than one list of scores in it")
	errMixed   = errors.New("its list mixes numbers and results")
	errNoIndex = errors.New("a result has no index")
	errNumber  = errors.New("a score is not a finite number")
	errTwice   = errors.New("a document has two scores")
	errBeyond  = errors.New("there is a score for a document that was not sent")
)

// missing is the score of a document that the reply does not mention.
var missing = math.NaN()

func isMissing(score float64) bool { return math.IsNaN(score) }

// readReply reads the scores of n documents as they were sent. The list is either n numbers in the
// order of the documents, or results that say which document they are about, in any order; endpoints
// in the wild answer with one or the other whatever they were asked. Only a partial list of results
// may leave documents out, but not all.
func readReply(body []byte, n int, partial bool) ([]float64, error) {
	list, err := findList(body)
	if err != nil {
		return nil, err
	}
	scores := make([]float64, n)
	for i := range scores {
		scores[i] = missing
	}
	count, numbers := 0, 0
	err = jsonscan.Elements(body, list, func(span jsonscan.Span) error {
		if body[span.Start] != '{' {
			numbers++
		}
		at, score, err := readEntry(body, span, count)
		if err != nil {
			return err
		}
		count++
		return place(scores, at, score)
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

func place(scores []float64, at int, score float64) error {
	switch {
	case at < 0 || at >= len(scores):
		return errBeyond
	case !isMissing(scores[at]):
		return errTwice
	}
	scores[at] = score
	return nil
}

// findList checks all of the body, and finds the list of scores in it.
func findList(body []byte) (jsonscan.Span, error) {
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
	return whole, errTwo
}

// readEntry reads a result, or a number, which is the score of the next document.
func readEntry(body []byte, span jsonscan.Span, next int) (at int, score float64, err error) {
	if body[span.Start] == '{' {
		return readResult(body, span)
	}
	score, err = readNumber(span.Of(body))
	return next, score, err
}

func readResult(body []byte, span jsonscan.Span) (at int, score float64, err error) {
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
	score, err = readNumber(raw)
	return at, score, err
}

// readNumber reads a number that JSON has: ParseFloat knows more, such as Infinity.
func readNumber(raw []byte) (float64, error) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, errNumber
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, errNumber
	}
	return f, nil
}

// slack is how far a probability may be off its range by rounding.
const slack = 1e-3

// scale brings the scores of one answer to 0..1, in place. Most servers answer with probabilities,
// which stay as they are; llama.cpp, and models without a head of their own, answer with logits or
// similarities, which go through the logistic function. One score out of range says that all are
// logits: one rule for all scores of an answer, from however many replies, keeps their order. What
// was not mentioned is 0.
func scale(scores []float64) {
	logits := false
	for _, s := range scores {
		logits = logits || s < -slack || s > 1+slack // a missing one is neither
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
