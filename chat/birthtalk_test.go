package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
)

// used is one call of a tool and what came of it.
type used struct {
	id, name, args string
	texts          []string // of the blocks of its result
	image          bool     // and a picture
	failed         bool
	orphan         bool // its call is not there
}

// said is what happened in a conversation: the user spoke, or tools were used.
type said struct {
	user string
	uses []used
}

func quoted(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}

// written is the request of a shape. tools is the list of what the client offers.
func written(shape chat.Shape, tools string, talk []said) string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, s := range talk {
		if s.user != "" {
			add(`{"role":"user","content":%s}`, quoted(s.user))
			continue
		}
		var calls, results []string
		for _, u := range s.uses {
			var call string
			switch shape {
			case chat.Completions:
				call = fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, u.id, u.name, quoted(u.args))
			case chat.Messages:
				call = fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, u.id, u.name, u.args)
			default:
				call = fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":%q,"arguments":%s}`, u.id, u.name, quoted(u.args))
			}
			if !u.orphan {
				calls = append(calls, call)
			}
			results = append(results, u.result(shape))
		}
		switch shape {
		case chat.Completions:
			add(`{"role":"assistant","content":null,"tool_calls":[%s]}`, strings.Join(calls, ","))
			list = append(list, results...)
		case chat.Messages:
			add(`{"role":"assistant","content":[%s]}`, strings.Join(calls, ","))
			add(`{"role":"user","content":[%s]}`, strings.Join(results, ","))
		default:
			list = append(append(list, calls...), results...)
		}
	}
	key := map[chat.Shape]string{chat.Completions: "messages", chat.Messages: "messages", chat.Responses: "input"}[shape]
	return fmt.Sprintf(`{"model":"m-1","max_tokens":9,"tools":[%s],"%s":[%s]}`, tools, key, strings.Join(list, ", "))
}

// result is a result as its shape has it: a string, or a list of blocks.
func (u used) result(shape chat.Shape) string {
	kinds := map[chat.Shape][2]string{
		chat.Completions: {"text", `{"type":"image_url","image_url":{"url":"data:"}}`},
		chat.Messages:    {"text", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`},
		chat.Responses:   {"input_text", `{"type":"input_image","image_url":"data:"}`},
	}[shape]
	content := quoted(u.texts[0])
	if len(u.texts) > 1 || u.image {
		var blocks []string
		for _, text := range u.texts {
			blocks = append(blocks, fmt.Sprintf(`{"type":%q,"text":%s}`, kinds[0], quoted(text)))
		}
		if u.image {
			blocks = append(blocks, kinds[1])
		}
		content = "[" + strings.Join(blocks, ",") + "]"
	}
	switch shape {
	case chat.Completions:
		return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%s}`, u.id, content)
	case chat.Messages:
		return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"is_error":%v,"content":%s}`, u.id, u.failed, content)
	}
	return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%s}`, u.id, content)
}

const recoverTool = `{"name":"mcp__ctxgate__recover_text","input_schema":{"properties":{"prune_id":{"type":"string"}}}}`

// source is a text of about so many bytes that looks like a program.
func source(seed, size int) string {
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

// anyTalk is a conversation of n tool turns with results of all sorts.
func anyTalk(seed uint64, n int) []said {
	rnd := rand.New(rand.NewPCG(seed, 21))
	out := []said{{user: "Find where the cache evicts sessions."}}
	for i := range n {
		if rnd.IntN(6) == 0 {
			out = append(out, said{user: fmt.Sprintf("And how does the ledger count %d?", i)})
		}
		var s said
		for k := range 1 + rnd.IntN(3)*rnd.IntN(2) {
			u := used{id: fmt.Sprintf("c%d_%d", i, k), name: "read", args: fmt.Sprintf(`{"path":"src/file%d.go","pattern":"evict"}`, i)}
			u.texts = []string{source(i*10+k, 100+rnd.IntN(6000))}
			switch rnd.IntN(10) {
			case 0:
				u.texts = append(u.texts, source(i, 3000))
			case 1:
				u.image = true
			case 2:
				u.failed, u.texts[0] = true, "Error: exit status 1\n"+u.texts[0]
			case 3:
				u.texts[0] = strings.Repeat("one line ", 400)
			}
			s.uses = append(s.uses, u)
		}
		out = append(out, s)
	}
	return out
}

// young is a policy that shortens what is longer than 2000 characters.
func young(how string) chat.Birth {
	b := chat.DefaultBirth()
	b.Reduce, b.MaxChars, b.HeadChars, b.TailChars = how, 2000, 500, 500
	return b
}

// outgoing is a request on its way, and what is to become of its new results.
type outgoing struct {
	chat.Outgoing
	birth chat.Birth
}

// going is a request with a policy for new results only.
func going(shape chat.Shape, body string, birth chat.Birth) outgoing {
	return outgoing{chat.Outgoing{Shape: shape, Model: "m-1", Provider: "p", Body: []byte(body)}, birth}
}

// sent is the request as it goes out, and what was done to it.
func sent(shrink func(chat.Birth) chat.Shrink, o outgoing) (string, chat.Shrunk) {
	done := shrink(o.birth)(context.Background(), o.Outgoing)
	return string(jsonscan.AppendSpliced(nil, o.Body, done.Edits)), done
}

var marker = regexp.MustCompile(`(?:⟦PRUNÉ: |\[recover: )prune_id=(prn_\w+) `)

// original reads back what is kept under an id.
func original(t *testing.T, r *recall.Recall, id string) string {
	t.Helper()
	o, err := r.Open(t.Context(), "", id)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := o.WriteText(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// textsOf are the texts of all results of a request.
func textsOf(t *testing.T, shape chat.Shape, body string) []string {
	t.Helper()
	d, err := history.Read(shape, []byte(body), 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	var out []string
	for _, r := range d.Results {
		for _, span := range r.Texts {
			out = append(out, string(jsonscan.AppendText(nil, span.Of([]byte(body)))))
		}
	}
	return out
}

// moody is a store that refuses while it is down.
type moody struct {
	state.Driver
	down atomic.Bool
}

func (m *moody) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	if m.down.Load() {
		return fault.New(fault.Unavailable, "down")
	}
	return m.Driver.Put(ctx, items, lease)
}
