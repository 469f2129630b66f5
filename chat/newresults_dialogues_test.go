package chat_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
)

// toolUse is one tool call with its result.
type toolUse struct {
	id, name, args string
	texts          []string // the text blocks of its result
	hasImage       bool     // the result also has an image block
	isError        bool
	withoutCall    bool // the request has the result but not the call
}

// dialogueStep is one step of a dialogue: a user message, or tool calls.
type dialogueStep struct {
	user string
	uses []toolUse
}

// encodeRequest encodes a dialogue as a request; tools are the elements of its tool list.
func encodeRequest(shape llm.Codec, tools string, dialogue []dialogueStep) string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, s := range dialogue {
		if s.user != "" {
			add(`{"role":"user","content":%s}`, jsonString(s.user))
			continue
		}
		var calls, results []string
		for _, u := range s.uses {
			var call string
			switch shape {
			case openaichat.Codec{}:
				call = fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, u.id, u.name, jsonString(u.args))
			case anthropic.Codec{}:
				call = fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, u.id, u.name, u.args)
			default:
				call = fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":%q,"arguments":%s}`, u.id, u.name, jsonString(u.args))
			}
			if !u.withoutCall {
				calls = append(calls, call)
			}
			results = append(results, u.encodeResult(shape))
		}
		switch shape {
		case openaichat.Codec{}:
			add(`{"role":"assistant","content":null,"tool_calls":[%s]}`, strings.Join(calls, ","))
			list = append(list, results...)
		case anthropic.Codec{}:
			add(`{"role":"assistant","content":[%s]}`, strings.Join(calls, ","))
			add(`{"role":"user","content":[%s]}`, strings.Join(results, ","))
		default:
			list = append(append(list, calls...), results...)
		}
	}
	key := map[llm.Codec]string{openaichat.Codec{}: "messages", anthropic.Codec{}: "messages", responses.Codec{}: "input"}[shape]
	return fmt.Sprintf(`{"model":"m-1","max_tokens":9,"tools":[%s],"%s":[%s]}`, tools, key, strings.Join(list, ", "))
}

// encodeResult encodes a result: its content is a string, or a list of blocks.
func (u toolUse) encodeResult(shape llm.Codec) string {
	kinds := map[llm.Codec][2]string{
		openaichat.Codec{}: {"text", `{"type":"image_url","image_url":{"url":"data:"}}`},
		anthropic.Codec{}:  {"text", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`},
		responses.Codec{}:  {"input_text", `{"type":"input_image","image_url":"data:"}`},
	}[shape]
	content := jsonString(u.texts[0])
	if len(u.texts) > 1 || u.hasImage {
		var blocks []string
		for _, text := range u.texts {
			blocks = append(blocks, fmt.Sprintf(`{"type":%q,"text":%s}`, kinds[0], jsonString(text)))
		}
		if u.hasImage {
			blocks = append(blocks, kinds[1])
		}
		content = "[" + strings.Join(blocks, ",") + "]"
	}
	switch shape {
	case openaichat.Codec{}:
		return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%s}`, u.id, content)
	case anthropic.Codec{}:
		return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"is_error":%v,"content":%s}`, u.id, u.isError, content)
	}
	return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%s}`, u.id, content)
}

const recoverTool = `{"name":"mcp__ctxgate__recover_text","input_schema":{"properties":{"prune_id":{"type":"string"}}}}`

// sourceText is a text of about size bytes that looks like source code.
func sourceText(seed, size int) string {
	rnd := rand.New(rand.NewPCG(uint64(seed), 9))
	words := strings.Fields("cache evict ledger parse render session worker quota invoice é😀 \"quoted\" back\\slash")
	var b strings.Builder
	b.WriteString("package main\n\nimport \"fmt\"\n")
	for i := 0; b.Len() < size; i++ {
		w := func() string { return words[rnd.IntN(len(words))] }
		fmt.Fprintf(&b, "\nfunc do%d() int {\n\tfmt.Println(%q, %d)\n\t// %s the %s of the %s\n\treturn %d\n}\n", i, w(), i, w(), w(), w(), rnd.IntN(1000))
	}
	return b.String()
}

// randomDialogue is a dialogue of n tool turns with long, short, failed, one-line and image results.
func randomDialogue(seed uint64, n int) []dialogueStep {
	rnd := rand.New(rand.NewPCG(seed, 21))
	out := []dialogueStep{{user: "Find where the cache evicts sessions."}}
	for i := range n {
		if rnd.IntN(6) == 0 {
			out = append(out, dialogueStep{user: fmt.Sprintf("And how does the ledger count %d?", i)})
		}
		var s dialogueStep
		for k := range 1 + rnd.IntN(3)*rnd.IntN(2) {
			u := toolUse{id: fmt.Sprintf("c%d_%d", i, k), name: "read", args: fmt.Sprintf(`{"path":"src/file%d.go","pattern":"evict"}`, i)}
			u.texts = []string{sourceText(i*10+k, 100+rnd.IntN(6000))}
			switch rnd.IntN(10) {
			case 0:
				u.texts = append(u.texts, sourceText(i, 3000))
			case 1:
				u.hasImage = true
			case 2:
				u.isError, u.texts[0] = true, "Error: exit status 1\n"+u.texts[0]
			case 3:
				u.texts[0] = strings.Repeat("one line ", 400)
			}
			s.uses = append(s.uses, u)
		}
		out = append(out, s)
	}
	return out
}

// shortenOver2000 is a policy that shortens texts of more than 2000 characters with a reducer.
func shortenOver2000(reducer string) masking.NewResults {
	b := masking.DefaultNewResults()
	b.Reduce, b.MaxChars, b.HeadChars, b.TailChars = reduce.Name(reducer), 2000, 500, 500
	return b
}

// newResultsRequest is a request with a policy for its new results.
type newResultsRequest struct {
	masking.Request
	policy masking.NewResults
}

// withNewResults returns a request with a policy for new results only.
func withNewResults(shape llm.Codec, body string, policy masking.NewResults) newResultsRequest {
	return newResultsRequest{masking.Request{Codec: shape, Model: "m-1", Provider: "p", Body: []byte(body)}, policy}
}

// shrunkBody returns the body that is sent, and what was shortened in it.
func shrunkBody(shrink func(masking.NewResults) chat.Shrinker, o newResultsRequest) (string, masking.Result) {
	done := shrink(o.policy)(context.Background(), o.Request)
	return string(jsonscan.AppendSpliced(nil, o.Body, done.Edits)), done
}

var marker = regexp.MustCompile(`(?:⟦PRUNÉ: |\[recover: )prune_id=(prn_\w+) `)

// readOriginal reads the original of an id.
func readOriginal(t *testing.T, r *recall.Recall, id string) string {
	t.Helper()
	return readTenantOriginal(t, r, "", id)
}

func readTenantOriginal(t *testing.T, r *recall.Recall, tenant, id string) string {
	t.Helper()
	o, err := r.Open(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := o.WriteText(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// resultTexts returns the texts of all results of a request.
func resultTexts(t *testing.T, shape llm.Codec, body string) []string {
	t.Helper()
	d, err := history.Read(shape, []byte(body), 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	var out []string
	for _, r := range d.Results {
		for _, span := range r.Texts {
			out = append(out, string(jsonscan.AppendDecoded(nil, span.Of([]byte(body)))))
		}
	}
	return out
}

// failingStore is a store that refuses writes while it is down.
type failingStore struct {
	state.Driver
	isDown atomic.Bool
}

func (m *failingStore) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if m.isDown.Load() {
		return false, fault.New(fault.Unavailable, "down")
	}
	return m.Driver.PutIf(ctx, cond, items, lease)
}
