package chat_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// piece is a part of a request. The text of a tool result is a piece of its own, so that a test can compare what
// the provider got byte by byte without reading any JSON.
type piece struct {
	raw      string // its bytes in the request
	result   string // call id if this is the text of a result, else ""
	first    bool   // the first block of that result
	maskable bool   // the result is only text, and not an error
	isList   bool   // of one text, which only the profile agents masks
	path     string // a file path in its text
	mayMark  bool   // a cache_control may be put here
}

// step is what a client adds between two requests.
type step struct {
	pieces     []piece
	isToolTurn bool   // the model calls tools
	text       string // of the model and the user
}

// dialogue is a generated conversation in one wire format. A request is head, the steps so far, and foot.
type dialogue struct {
	path, kind    string
	rnd           *rand.Rand
	head, foot    string
	steps         []step
	calls         int
	markPlacement markPlacement
}

// markPlacement is where a client puts its cache_control in each request.
type markPlacement uint8

const (
	noMarks  markPlacement = iota
	lastStep               // as coding agents do
	lastTwo
	everyThird // the last step whose index divides by three: it moves every three steps
)

// marks reports whether step i of n carries a cache_control.
func (h markPlacement) marks(i, n int) bool {
	switch h {
	case lastStep:
		return i == n-1
	case lastTwo:
		return i >= n-2
	case everyThird:
		return i == (n-1)/3*3
	case noMarks:
	}
	return false
}

const ephemeral = `,"cache_control":{"type":"ephemeral"}`

func jsonString(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}

// newDialogue generates a conversation of some tool turns, with difficult parts now and then: parallel calls,
// thinking, images, lists of blocks, empty and short results, errors, odd names.
func newDialogue(path string, seed uint64, turns int) *dialogue {
	d := &dialogue{path: path, kind: "openai", rnd: rand.New(rand.NewPCG(seed, 23)), foot: `],"stream":true}`}
	system := jsonString("You are an agent. " + strings.Repeat("Be brief. ", d.rnd.IntN(4)))
	switch path {
	case "/v1/messages":
		d.kind, d.markPlacement = "anthropic", markPlacement(d.rnd.IntN(4))
		d.head = `{"max_tokens":99,"model":"m-1","system":[{"type":"text","text":` + system + ephemeral + `}],"messages":[`
		d.foot = "]\n, \"stream\" : true}"
	case geminiPath:
		d.kind = "gemini"
		d.head = `{"systemInstruction":{"parts":[{"text":` + system + `}]},"contents":[`
		d.foot = `],"tools":[{"functionDeclarations":[]}]}`
	case "/v1/responses":
		d.head = `{"model":"m-1","store":false,"instructions":` + system + `,"input":[`
	default:
		d.head = `{"messages": [{"role":"system","content":` + system + `}, `
		d.foot = `],"stream":true,"model":"m-1","tools":[]}`
	}
	d.addUserMessage("Please fix src/pkg/file_0.go")
	for range turns {
		d.addToolTurn()
		if d.rnd.IntN(6) == 0 {
			d.addUserMessage("Go on with " + d.randomPath())
		}
	}
	return d
}

func (d *dialogue) randomPath() string {
	return fmt.Sprintf("src/pkg/file_%d.go", d.rnd.IntN(d.calls+1))
}

func (d *dialogue) addStep(s step) {
	if len(d.steps) > 0 {
		s.pieces = append([]piece{{raw: ", "}}, s.pieces...)
	}
	d.steps = append(d.steps, s)
}

// addUserMessage adds a final answer of the model, if any, and the user's next message.
func (d *dialogue) addUserMessage(text string) {
	s := step{text: text}
	if len(d.steps) > 0 {
		done := "Done with " + d.randomPath()
		s.text += " " + done
		said := `{"role":"assistant","content":` + jsonString(done) + `},`
		if d.path == geminiPath {
			said = `{"role":"model","parts":[{"text":` + jsonString(done) + `}]},`
		}
		s.pieces = append(s.pieces, piece{raw: said})
	}
	switch d.path {
	case "/v1/messages":
		s.pieces = append(s.pieces, piece{raw: `{"role":"user","content":[{"type":"text","text":` + jsonString(text)}, piece{mayMark: true}, piece{raw: `}]}`})
	case geminiPath:
		s.pieces = append(s.pieces, piece{raw: `{"role":"user","parts":[{"text":` + jsonString(text) + `}]}`})
	default:
		s.pieces = append(s.pieces, piece{raw: `{"role":"user","content":` + jsonString(text) + `}`})
	}
	d.addStep(s)
}

// toolResult is the result of one call.
type toolResult struct {
	id, name string
	texts    []string
	image    bool
	failed   bool
	path     string
}

func (d *dialogue) randomResult() toolResult {
	d.calls++
	a := toolResult{
		id: fmt.Sprintf("call_%d", d.calls), name: []string{"read_file", "grep", `odd"\name`}[d.rnd.IntN(3)],
		image: d.rnd.IntN(15) == 0, path: fmt.Sprintf("src/pkg/file_%d.go", d.calls),
	}
	for range 1 + d.rnd.IntN(2)*d.rnd.IntN(2) {
		a.texts = append(a.texts, a.path+":12: «été» \"q\" \\ \t"+strings.Repeat("a line of text\n", 12+d.rnd.IntN(6)))
	}
	switch d.rnd.IntN(12) {
	case 0:
		a.texts = []string{"ok"}
	case 1:
		a.texts = []string{""}
	case 2:
		a.texts, a.failed = []string{"Error: no such file\n" + strings.Repeat("x", 200)}, true
	}
	return a
}

// addToolTurn adds a step in which the model calls tools and gets their results.
func (d *dialogue) addToolTurn() {
	var list []toolResult
	for range 1 + d.rnd.IntN(3)*d.rnd.IntN(2) {
		list = append(list, d.randomResult())
	}
	preamble := ""
	if d.rnd.IntN(2) == 0 {
		preamble = "Let me see " + d.randomPath()
	}
	s := step{isToolTurn: true, text: preamble}
	switch d.path {
	case "/v1/messages":
		s.pieces = d.messagesPieces(preamble, list)
	case "/v1/responses":
		s.pieces = d.responsesPieces(preamble, list)
	case geminiPath:
		s.pieces = d.geminiPieces(preamble, list)
	default:
		s.pieces = d.chatPieces(preamble, list)
	}
	d.addStep(s)
}

func (d *dialogue) chatPieces(preamble string, list []toolResult) []piece {
	var use []string
	for _, a := range list {
		use = append(use, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%s,"arguments":"{}"}}`, a.id, jsonString(a.name)))
	}
	out := []piece{{raw: fmt.Sprintf(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, jsonString(preamble), strings.Join(use, ", "))}}
	for _, a := range list {
		text := strings.Join(a.texts, "\n")
		lead := fmt.Sprintf(`,{"role":"tool","tool_call_id":%q, "content":`, a.id)
		if a.image { // a list: in this format only the profile agents masks it
			text := a.piece(text, true)
			text.isList = true
			out = append(out, piece{raw: lead + `[{"type":"text","text":`}, text, piece{raw: `}]}`})
			continue
		}
		out = append(out, piece{raw: lead}, a.piece(text, true), piece{raw: "}"})
	}
	return out
}

// piece returns a text of the result as a JSON string.
func (a toolResult) piece(text string, first bool) piece {
	return piece{raw: jsonString(text), result: a.id, first: first, maskable: !a.image && !a.failed, path: a.path}
}

func (d *dialogue) messagesPieces(preamble string, list []toolResult) []piece {
	blocks := []string{}
	if d.rnd.IntN(2) == 0 {
		blocks = append(blocks, `{"type":"thinking","thinking":"hm «é»","signature":"c2lnbmVk"}`)
	}
	if preamble != "" {
		blocks = append(blocks, `{"type":"text","text":`+jsonString(preamble)+`}`)
	}
	for _, a := range list {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%s,"input":{}}`, a.id, jsonString(a.name)))
	}
	out := []piece{{raw: `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]},{"role":"user","content":[`}}
	for i, a := range list {
		if i > 0 {
			out = append(out, piece{raw: ","})
		}
		out = append(out, piece{raw: fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"is_error":%v,"content":`, a.id, a.failed)})
		out = append(out, d.resultPieces(a, `"text"`, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`)...)
		if i == len(list)-1 {
			out = append(out, piece{mayMark: true})
		}
		out = append(out, piece{raw: "}"})
	}
	return append(out, piece{raw: "]}"})
}

// resultPieces returns a result as one text or as a list of blocks.
func (d *dialogue) resultPieces(a toolResult, kind, image string) []piece {
	if len(a.texts) == 1 && !a.image && d.rnd.IntN(2) == 0 {
		return []piece{a.piece(a.texts[0], true)}
	}
	out := []piece{{raw: "["}}
	texts := slices.DeleteFunc(slices.Clone(a.texts), func(s string) bool { return s == "" })
	for i, text := range texts {
		if i > 0 {
			out = append(out, piece{raw: ","})
		}
		out = append(out, piece{raw: `{"type":` + kind + `,"text":`}, a.piece(text, i == 0), piece{raw: "}"})
	}
	if a.image {
		if len(texts) > 0 {
			image = "," + image
		}
		out = append(out, piece{raw: image})
	}
	return append(out, piece{raw: "]"})
}

func (d *dialogue) responsesPieces(preamble string, list []toolResult) []piece {
	var out []piece
	if d.rnd.IntN(2) == 0 {
		out = append(out, piece{raw: `{"type":"reasoning","summary":[],"encrypted_content":"Zm9v"},`})
	}
	if preamble != "" {
		out = append(out, piece{raw: `{"type":"message","role":"assistant","content":[{"type":"output_text","text":` + jsonString(preamble) + `}]},`})
	}
	for _, a := range list {
		out = append(out, piece{raw: fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":%s,"arguments":"{}"},`, a.id, jsonString(a.name))})
	}
	for i, a := range list {
		if i > 0 {
			out = append(out, piece{raw: ","})
		}
		out = append(out, piece{raw: fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":`, a.id)})
		out = append(out, d.resultPieces(a, `"input_text"`, `{"type":"input_image","image_url":"data:"}`)...)
		out = append(out, piece{raw: "}"})
	}
	return out
}

// geminiPieces writes results as Gemini CLI and as MCP servers do, half of them without ids.
func (d *dialogue) geminiPieces(preamble string, list []toolResult) []piece {
	parts := []string{}
	if d.rnd.IntN(2) == 0 {
		parts = append(parts, `{"text":"hm «é»","thought":true}`)
	}
	if preamble != "" {
		parts = append(parts, `{"text":`+jsonString(preamble)+`}`)
	}
	named := d.rnd.IntN(2) == 0
	id := func(a toolResult) string {
		if !named {
			return ""
		}
		return `"id":` + jsonString(a.id) + `, `
	}
	for _, a := range list {
		parts = append(parts, fmt.Sprintf(`{"functionCall":{%s"name":%s,"args":{}},"thoughtSignature":"c2lnbmVk"}`, id(a), jsonString(a.name)))
	}
	out := []piece{{raw: `{"role":"model","parts":[` + strings.Join(parts, ",") + `]},{"role":"user","parts":[`}}
	for i, a := range list {
		if i > 0 {
			out = append(out, piece{raw: ","})
		}
		out = append(out, piece{raw: fmt.Sprintf(`{"functionResponse":{%s"name":%s,"response":{`, id(a), jsonString(a.name))})
		key := `"output":`
		if a.failed {
			key = `"error":`
		}
		if len(a.texts) == 1 {
			out = append(out, piece{raw: key}, a.piece(a.texts[0], true))
		} else {
			out = append(append(out, piece{raw: `"content": `}), d.resultPieces(toolResult{id: a.id, texts: a.texts, path: a.path}, `"text"`, "")...)
		}
		out = append(out, piece{raw: `, "exit_code":0}`})
		if a.image {
			out = append(out, piece{raw: `,"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]`})
		}
		out = append(out, piece{raw: "}}"})
	}
	return append(out, piece{raw: "]}"})
}

// request returns what the client sends after n steps.
func (d *dialogue) request(n int) []piece {
	out := []piece{{raw: d.head}}
	for i, s := range d.steps[:n] {
		for _, p := range s.pieces {
			if p.mayMark && d.markPlacement.marks(i, n) {
				p.raw = ephemeral
			}
			out = append(out, p)
		}
	}
	return append(out, piece{raw: d.foot})
}

func joinPieces(pieces []piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.raw)
	}
	return b.String()
}

// turnCount counts the tool turns among the first n steps.
func (d *dialogue) turnCount(n int) int {
	t := 0
	for _, s := range d.steps[:n] {
		if s.isToolTurn {
			t++
		}
	}
	return t
}
