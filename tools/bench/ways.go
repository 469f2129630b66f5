package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/rpc"
)

var mask = reduce.DefaultMask()

// maskWithCtxgate is the gateway's own path: one strict pass, cuts, splice.
func maskWithCtxgate(dst, body []byte) []byte {
	rep, err := rpc.ParseReply(body, 128, mask.MaxChars)
	if err != nil {
		panic(err)
	}
	edits := make([]jsonscan.Edit, 0, len(rep.LongStrings))
	for _, s := range rep.LongStrings {
		if cut, ok := mask.CutString(body, s); ok {
			edits = append(edits, cut.Edit(""))
		}
	}
	return jsonscan.AppendSpliced(dst, body, edits)
}

// allocsUncut counts the allocations for a body without anything to cut.
func allocsUncut(body []byte) int {
	return int(testing.AllocsPerRun(3, func() {
		rep, err := rpc.ParseReply(body, 128, math.MaxInt)
		if err != nil {
			panic(err)
		}
		if err := jsonscan.Splice(io.Discard, rep.Body, nil); err != nil {
			panic(err)
		}
	}))
}

// maskWithAny decodes to a tree and encodes again, as most gateways do.
func maskWithAny(dst, body []byte) []byte {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		panic(err)
	}
	doc["result"] = maskTree(doc["result"])
	out, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return append(dst, out...)
}

func maskTree(v any) any {
	switch v := v.(type) {
	case string:
		if utf8.RuneCountInString(v) <= mask.MaxChars {
			return v
		}
		r := []rune(v)
		return string(r[:mask.HeadChars]) + marker(len(r)) + string(r[len(r)-mask.TailChars:])
	case []any:
		for i := range v {
			v[i] = maskTree(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = maskTree(v[k])
		}
	}
	return v
}

func marker(chars int) string {
	return fmt.Sprintf("\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=%d head=%d tail=%d] ...\n", chars, mask.HeadChars, mask.TailChars)
}

// maskWithJSONText finds the same strings with jsontext and splices them the same way.
func maskWithJSONText(dst, body []byte, duplicates bool) []byte {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(duplicates))
	var edits []jsonscan.Edit
	inResult := false
	for {
		kind := d.PeekKind()
		if kind == 0 {
			break
		}
		depth := d.StackDepth()
		if kind != '"' {
			if _, err := d.ReadToken(); err != nil {
				panic(err)
			}
			continue
		}
		in, n := d.StackIndex(depth)
		v, err := d.ReadValue()
		if err != nil {
			panic(err)
		}
		if in == '{' && n%2 == 0 {
			if depth == 1 {
				inResult = string(v) == `"result"`
			}
			continue
		}
		if !inResult || len(v)-2 <= mask.MaxChars {
			continue
		}
		end := int(d.InputOffset()) - 1
		raw := jsonscan.Span{Start: end - len(v) + 2, End: end}
		s := jsonscan.Str{Span: raw, Chars: jsonscan.CountChars(raw.Of(body))}
		if cut, ok := mask.CutString(body, s); ok {
			edits = append(edits, cut.Edit(""))
		}
	}
	return jsonscan.AppendSpliced(dst, body, edits)
}
