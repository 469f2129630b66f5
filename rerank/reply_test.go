package rerank

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseReply(t *testing.T) {
	for _, tt := range []struct {
		name    string
		body    string
		n       int
		partial bool
		want    []float64 // nil: refused
	}{
		{"scores", `{"scores":[0.1,0.2],"input_tokens":3}`, 2, false, []float64{0.1, 0.2}},
		{"results in any order", `{"results":[{"index":1,"relevance_score":0.2},{"index":0,"relevance_score":0.1}]}`, 2, true, []float64{0.1, 0.2}},
		{"results under data", `{"object":"list","data":[{"index":0,"relevance_score":0.5,"document":"x"}]}`, 1, true, []float64{0.5}},
		{"a bare list of results", `[{"index":1,"score":0.2},{"index":0,"score":0.1,"text":"x"}]`, 2, false, []float64{0.1, 0.2}},
		{"a bare list of numbers", ` [1, 0] `, 2, false, []float64{1, 0}},
		{"scores of results", `{"scores":[{"index":0,"score":0.5}]}`, 1, false, []float64{0.5}},
		{"a null list beside scores", `{"results":null,"scores":[0.5]}`, 1, false, []float64{0.5}},
		{"logits", `{"scores":[0,1000,-1000]}`, 3, false, []float64{0.5, 1, 0}},
		{"one logit makes all logits", `{"scores":[0,1.5]}`, 2, false, []float64{0.5, 0.8175744761936437}},
		{"rounding", `{"scores":[1.0000001,-1e-9,0.5]}`, 3, false, []float64{1, 0, 0.5}},
		{"an underflow", `{"scores":[1e-999]}`, 1, false, []float64{0}},
		{"the top result only", `{"results":[{"index":2,"relevance_score":0.9}]}`, 3, true, []float64{0, 0, 0.9}},
		{"the top result only, of logits", `{"results":[{"index":1,"relevance_score":-3}]}`, 2, true, []float64{0, 0.04742587317756678}},

		{"the top result where all are wanted", `[{"index":0,"score":0.5}]`, 2, false, nil},
		{"none", `{"results":[]}`, 2, true, nil},
		{"numbers are never partial", `{"scores":[0.5]}`, 2, true, nil},
		{"too many", `[0.1,0.2,0.3]`, 2, false, nil},
		{"an index twice", `{"results":[{"index":0,"relevance_score":0.2},{"index":0,"relevance_score":0.1}]}`, 2, true, nil},
		{"an index out of range", `{"results":[{"index":2,"relevance_score":0.2}]}`, 2, true, nil},
		{"a negative index", `{"results":[{"index":-1,"relevance_score":0.2}]}`, 2, true, nil},
		{"no index", `{"results":[{"relevance_score":0.2},{"relevance_score":0.1}]}`, 2, true, nil},
		{"a fractional index", `{"results":[{"index":0.5,"relevance_score":0.2}]}`, 1, true, nil},
		{"an index in quotes", `{"results":[{"index":"0","relevance_score":0.2}]}`, 1, true, nil},
		{"no score", `{"results":[{"index":0}]}`, 1, true, nil},
		{"a score in quotes", `{"results":[{"index":0,"score":"0.2"}]}`, 1, true, nil},
		{"a null score", `{"scores":[null]}`, 1, false, nil},
		{"a nested score", `{"scores":[[0.5]]}`, 1, false, nil},
		{"a true score", `{"scores":[true]}`, 1, false, nil},
		{"NaN", `{"scores":[NaN]}`, 1, false, nil},
		{"Infinity", `{"scores":[Infinity]}`, 1, false, nil},
		{"an overflow", `{"scores":[1e999]}`, 1, false, nil},
		{"mixed", `{"scores":[0.5,{"index":1,"score":0.5}]}`, 2, true, nil},
		{"two lists", `{"scores":[0.5],"results":[{"index":0,"score":0.5}]}`, 1, true, nil},
		{"a key twice", `{"scores":[0.5],"scores":[0.6]}`, 1, false, nil},
		{"a score twice", `[{"index":0,"score":0.5,"score":0.6}]`, 1, false, nil},
		{"a number", `0.5`, 1, false, nil},
		{"a string", `"scores"`, 1, false, nil},
		{"null", `null`, 1, false, nil},
		{"an object without a list", `{"score":0.5}`, 1, false, nil},
		{"a list elsewhere", `{"output":{"scores":[0.5]}}`, 1, false, nil},
		{"two documents", `{"scores":[0.5]}{"scores":[0.5]}`, 1, false, nil},
		{"truncated JSON", `{"scores":[0.5`, 1, false, nil},
		{"too deep", strings.Repeat("[", 100) + strings.Repeat("]", 100), 1, false, nil},
		{"an empty body", ``, 1, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseReply([]byte(tt.body), tt.n, tt.partial)
			if tt.want == nil {
				if err == nil {
					t.Errorf("got %v", got)
				}
				return
			}
			normalize(got)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// Any reply is rejected or gives every document a score from 0 to 1, ranked as in the reply.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"scores":[0.1,0.2],"inference_status":{"cost":4e-7}}`), uint8(2), false)
	f.Add([]byte(`{"results":[{"index":1,"relevance_score":-2.3},{"index":0,"relevance_score":7.7}]}`), uint8(2), true)
	f.Add([]byte(`{"results":[{"index":1,"relevance_score":0.5}]}`), uint8(3), true)
	f.Add([]byte(` [{"index":0,"score":1e-20},{"score":0.99,"index":1}] `), uint8(2), false)
	f.Add([]byte(`{"data":[{"index":0,"document":{"text":"\ud83d\ude00"},"relevance_score":1.0000001}]}`), uint8(1), true)
	f.Add([]byte(`{"scores":[1e999]}`), uint8(1), false)
	f.Add([]byte(`{"detail":{"error":"busy"}}`), uint8(1), false)
	f.Fuzz(func(t *testing.T, body []byte, docs uint8, partial bool) {
		n := max(int(docs), 1)
		raw, err := parseReply(body, n, partial)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is not JSON", body)
		}
		scores := slices.Clone(raw)
		normalize(scores)
		if len(scores) != n {
			t.Fatalf("%d scores of %d documents", len(scores), n)
		}
		scored := 0
		for i, a := range scores {
			if math.IsNaN(a) || a < 0 || a > 1 {
				t.Fatalf("score %v", a)
			}
			if isMissing(raw[i]) {
				continue
			}
			scored++
			for j, b := range scores {
				if raw[i] < raw[j] && a > b {
					t.Fatalf("%v < %v became %v > %v", raw[i], raw[j], a, b)
				}
			}
		}
		if scored == 0 || scored < n && !partial {
			t.Fatalf("%d of %d documents have a score", scored, n)
		}
	})
}
