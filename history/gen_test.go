package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ctxgate/ctxgate/llm"
)

// transcript is a conversation independent of the wire shape: its events in order.
type transcript []event

// event is a message of the user or of the model, or a tool turn.
type event struct {
	user  string
	model string // a message without tool calls
	calls []toolCall
}

type toolCall struct {
	id, name, args string
	results        []string // texts of the blocks of its result
	image          bool     // the result has an image block too
	failed         bool
}

// renderOptions are the ways in which a client may write the same conversation from turn to turn.
type renderOptions struct {
	marks    []int // the events with a cache_control, counted from the end
	thinking bool  // thinking blocks are included
	lists    bool  // a text is written as a list of one block
	noIDs    bool  // calls and results have no id, where the shape allows that
	system   string
}

// render encodes the transcript as a request of a wire shape.
func (t transcript) render(shape llm.Codec, l renderOptions) []byte {
	w := writer{renderOptions: l}
	for i, e := range t {
		w.mark = false
		for _, m := range l.marks {
			w.mark = w.mark || len(t)-1-i == m
		}
		switch shape {
		case openAIChat:
			w.writeChat(e)
		case anthropicMessages:
			w.writeMessages(e)
		case openAIResponses:
			w.writeResponses(e)
		case geminiContents:
			w.writeGemini(e)
		}
	}
	if l.system == "" {
		l.system = "You are an agent."
	}
	list := "[" + strings.Join(w.out, ", ") + "]"
	switch shape {
	case anthropicMessages:
		return []byte(`{"model":"m-1","max_tokens":99,"system":[{"type":"text","text":` + quote(l.system) + `,"cache_control":{"type":"ephemeral"}}],"messages":` + list + `,"stream":true}`)
	case openAIResponses:
		return []byte(`{"model":"m-1","instructions":` + quote(l.system) + `,"input":` + list + `,"stream":true}`)
	case geminiContents: // the path names the model
		return []byte(`{"model":"m-1","systemInstruction":{"parts":[{"text":` + quote(l.system) + `}]},"contents":` + list + `,"stream":true}`)
	default:
		return []byte(`{"model":"m-1","tools":[],"messages":` + list + `,"stream":true}`)
	}
}

type writer struct {
	renderOptions
	mark bool
	out  []string
}

func (w *writer) add(format string, args ...any) {
	w.out = append(w.out, fmt.Sprintf(format, args...))
}

func quote(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}

func (w *writer) writeChat(e event) {
	switch {
	case e.user != "":
		w.add(`{"role":"user","content":%s}`, quote(e.user))
	case e.model != "":
		w.add(`{"role":"assistant","content":%s}`, quote(e.model))
	default:
		var calls []string
		for _, c := range e.calls {
			calls = append(calls, fmt.Sprintf(`{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, quote(c.id), quote(c.name), quote(c.args)))
		}
		w.add(`{"role":"assistant","content":null,"tool_calls":[%s]}`, strings.Join(calls, ","))
		for _, c := range e.calls {
			content := quote(strings.Join(c.results, "\n"))
			if c.image {
				content = `[{"type":"text","text":` + content + `}]`
			}
			w.add(`{"role":"tool","tool_call_id":%s,"content":%s}`, quote(c.id), content)
		}
	}
}

func (w *writer) cacheControl(last bool) string {
	if w.mark && last {
		return `,"cache_control":{"type":"ephemeral"}`
	}
	return ""
}

func (w *writer) writeMessages(e event) {
	plain := func(role, text string) {
		if w.lists || w.mark {
			w.add(`{"role":"%s","content":[{"type":"text","text":%s%s}]}`, role, quote(text), w.cacheControl(true))
			return
		}
		w.add(`{"role":"%s","content":%s}`, role, quote(text))
	}
	switch {
	case e.user != "":
		plain("user", e.user)
		return
	case e.model != "":
		plain("assistant", e.model)
		return
	}
	var calls, results []string
	if w.thinking {
		calls = append(calls, `{"type":"thinking","thinking":"hm","signature":"c2ln"}`)
	}
	for i, c := range e.calls {
		calls = append(calls, fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":{"q":%s}}`, quote(c.id), quote(c.name), quote(c.args)))
		var blocks []string
		for _, text := range c.results {
			blocks = append(blocks, `{"type":"text","text":`+quote(text)+`}`)
		}
		if c.image {
			blocks = append(blocks, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`)
		}
		content := "[" + strings.Join(blocks, ",") + "]"
		if len(c.results) == 1 && !c.image && i%2 == 0 {
			content = quote(c.results[0])
		}
		results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%s,"is_error":%v,"content":%s%s}`, quote(c.id), c.failed, content, w.cacheControl(i == len(e.calls)-1)))
	}
	w.add(`{"role":"assistant","content":[%s]}`, strings.Join(calls, ","))
	w.add(`{"role":"user","content":[%s]}`, strings.Join(results, ","))
}

func (w *writer) writeResponses(e event) {
	switch {
	case e.user != "":
		w.add(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`, quote(e.user))
	case e.model != "":
		w.add(`{"role":"assistant","content":%s}`, quote(e.model))
	default:
		for _, c := range e.calls {
			if w.thinking {
				w.add(`{"type":"reasoning","summary":[],"encrypted_content":"Zm9v"}`)
			}
			w.add(`{"type":"function_call","call_id":%s,"name":%s,"arguments":%s}`, quote(c.id), quote(c.name), quote(c.args))
		}
		for i, c := range e.calls {
			output := quote(strings.Join(c.results, "\n"))
			if i%2 == 1 || c.image {
				var blocks []string
				for _, text := range c.results {
					blocks = append(blocks, `{"type":"input_text","text":`+quote(text)+`}`)
				}
				if c.image {
					blocks = append(blocks, `{"type":"input_image","image_url":"data:"}`)
				}
				output = "[" + strings.Join(blocks, ",") + "]"
			}
			w.add(`{"type":"function_call_output","call_id":%s,"output":%s}`, quote(c.id), output)
		}
	}
}

func (w *writer) writeGemini(e event) {
	switch {
	case e.user != "":
		w.add(`{"role":"user","parts":[{"text":%s}]}`, quote(e.user))
		return
	case e.model != "":
		w.add(`{"role":"model","parts":[{"text":%s}]}`, quote(e.model))
		return
	}
	var calls, results []string
	signature := ""
	if w.thinking {
		calls, signature = append(calls, `{"text":"hm","thought":true}`), `,"thoughtSignature":"c2ln"`
	}
	for _, c := range e.calls {
		id := `"id":` + quote(c.id) + `,`
		if w.noIDs {
			id = ""
		}
		calls = append(calls, fmt.Sprintf(`{"functionCall":{%s"name":%s,"args":{"q":%s}}%s}`, id, quote(c.name), quote(c.args), signature))
		signature = "" // only the first call of a turn has one
		key, media := "output", ""
		if c.failed {
			key = "error"
		}
		if c.image {
			media = `,"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]`
		}
		results = append(results, fmt.Sprintf(`{"functionResponse":{%s"name":%s,"response":{"%s":%s}%s}}`, id, quote(c.name), key, quote(strings.Join(c.results, "\n")), media))
	}
	w.add(`{"role":"model","parts":[%s]}`, strings.Join(calls, ","))
	w.add(`{"parts":[%s],"role":"user"}`, strings.Join(results, ","))
}

var tools = []string{"read_file", "grep", "bash", `odd"{tool_name}`, "fetch"}

// randomTranscript is an agent's conversation with occasional edge cases: errors, images, reused call ids.
func randomTranscript(seed uint64, turns int) transcript {
	rnd := rand.New(rand.NewPCG(seed, 7))
	out := transcript{{user: "Fix /home/ann/src/main.go please"}}
	number := 0
	reuse := rnd.IntN(6) == 0 // some providers restart the numbering of calls at each turn
	for range turns {
		if rnd.IntN(8) == 0 {
			out = append(out, event{model: "Done with " + randomPath(rnd)}, event{user: "go on, see " + randomPath(rnd)})
		}
		var e event
		if reuse {
			number = 0
		}
		for range 1 + rnd.IntN(3)*rnd.IntN(2) {
			number++
			c := toolCall{id: fmt.Sprintf("call_%d", number), name: tools[rnd.IntN(len(tools))], args: `{"path":"` + randomPath(rnd) + `"}`}
			c.results = randomResults(rnd)
			c.image, c.failed = rnd.IntN(15) == 0, rnd.IntN(25) == 0
			e.calls = append(e.calls, c)
		}
		out = append(out, e)
	}
	return out
}

func randomPath(rnd *rand.Rand) string { return fmt.Sprintf("/home/ann/src/file%d.go", rnd.IntN(12)) }

func randomResults(rnd *rand.Rand) []string {
	var out []string
	for range 1 + rnd.IntN(3)*rnd.IntN(2) {
		switch rnd.IntN(10) {
		case 0:
			out = append(out, "ok")
		case 1:
			out = append(out, "Error: no such file\n"+strings.Repeat("x", rnd.IntN(200)))
		case 2:
			out = append(out, `{"error":null,"rows":[`+strings.Repeat("1,", rnd.IntN(200))+`2]}`)
		default:
			out = append(out, randomPath(rnd)+":12: «été» \"q\" \\ \t"+strings.Repeat("a line of text\n", 8+rnd.IntN(6)))
		}
	}
	return out
}

// requests returns the transcript lengths at which a client sends a request.
func (t transcript) requests() []int {
	var out []int
	for i, e := range t {
		if e.model == "" {
			out = append(out, i+1)
		}
	}
	return out
}
