package chat_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// piece is some bytes of a request. The text of a tool's result is one of its own, so that a test can
// say of what the provider got which bytes are the client's, without reading any JSON.
type piece struct {
	raw    string // as it stands in the request
	result string // the id of the call whose result it is; "" for all else
	first  bool   // the first block of that result
	plain  bool   // that result may be masked: it is text, and no error
	path   string // a path that its text names
	marks  bool   // a cache_control may stand here
}

// step is what comes between two requests of a client.
type step struct {
	pieces []piece
	turn   bool   // a tool turn
	said   string // what the model or the user says in it
}

// dialogue is a generated conversation in one shape. A client sends head, the steps so far, and foot.
type dialogue struct {
	path, kind string
	rnd        *rand.Rand
	head, foot string
	steps      []step
	calls      int
	habit      habit
}

// habit is where a client puts its cache_control, anew in every request.
type habit uint8

const (
	nowhereAtAll habit = iota
	lastStep           // as coding agents do
	lastTwo
	everyThird // of the steps, the last of these: it stands still, and then jumps
)

// marks says whether step i of n carries one.
func (h habit) marks(i, n int) bool {
	switch h {
	case lastStep:
		return i == n-1
	case lastTwo:
		return i >= n-2
	case everyThird:
		return i == (n-1)/3*3
	case nowhereAtAll:
	}
	return false
}

const ephemeral = `,"cache_control":{"type":"ephemeral"}`

func literal(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}

// newDialogue makes a conversation of so many tool turns, with what makes trouble now and then:
// parallel calls, thinking, pictures, lists of blocks, empty and short results, errors, odd names.
func newDialogue(path string, seed uint64, turns int) *dialogue {
	d := &dialogue{path: path, kind: "openai", rnd: rand.New(rand.NewPCG(seed, 23)), foot: `],"stream":true}`}
	system := literal("You are an agent. " + strings.Repeat("Be brief. ", d.rnd.IntN(4)))
	switch path {
	case "/v1/messages":
		d.kind, d.habit = "anthropic", habit(d.rnd.IntN(4))
		d.head = `{"max_tokens":99,"model":"m-1","system":[{"type":"text","text":` + system + ephemeral + `}],"messages":[`
		d.foot = "]\n, \"stream\" : true}"
	case "/v1/responses":
		d.head = `{"model":"m-1","store":false,"instructions":` + system + `,"input":[`
	default:
		d.head = `{"messages": [{"role":"system","content":` + system + `}, `
		d.foot = `],"stream":true,"model":"m-1","tools":[]}`
	}
	d.user("Please fix src/pkg/file_0.go")
	for range turns {
		d.turn()
		if d.rnd.IntN(6) == 0 {
			d.user("Go on with " + d.anyPath())
		}
	}
	return d
}

func (d *dialogue) anyPath() string { return fmt.Sprintf("src/pkg/file_%d.go", d.rnd.IntN(d.calls+1)) }

func (d *dialogue) add(s step) {
	if len(d.steps) > 0 {
		s.pieces = append([]piece{{raw: ", "}}, s.pieces...)
	}
	d.steps = append(d.steps, s)
}

// user: the model has said something, and the user answers.
func (d *dialogue) user(text string) {
	s := step{said: text}
	if len(d.steps) > 0 {
		done := "Done with " + d.anyPath()
		s.said += " " + done
		s.pieces = append(s.pieces, piece{raw: `{"role":"assistant","content":` + literal(done) + `},`})
	}
	if d.path == "/v1/messages" {
		s.pieces = append(s.pieces, piece{raw: `{"role":"user","content":[{"type":"text","text":` + literal(text)}, piece{marks: true}, piece{raw: `}]}`})
	} else {
		s.pieces = append(s.pieces, piece{raw: `{"role":"user","content":` + literal(text) + `}`})
	}
	d.add(s)
}

// answer is what one call gives.
type answer struct {
	id, name string
	texts    []string
	image    bool
	failed   bool
	path     string
}

func (d *dialogue) answer() answer {
	d.calls++
	a := answer{
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

// turn: the model calls tools, and the tools answer.
func (d *dialogue) turn() {
	var list []answer
	for range 1 + d.rnd.IntN(3)*d.rnd.IntN(2) {
		list = append(list, d.answer())
	}
	said := ""
	if d.rnd.IntN(2) == 0 {
		said = "Let me see " + d.anyPath()
	}
	s := step{turn: true, said: said}
	switch d.path {
	case "/v1/messages":
		s.pieces = d.messages(said, list)
	case "/v1/responses":
		s.pieces = d.items(said, list)
	default:
		s.pieces = d.chat(said, list)
	}
	d.add(s)
}

func (d *dialogue) chat(said string, list []answer) []piece {
	var use []string
	for _, a := range list {
		use = append(use, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%s,"arguments":"{}"}}`, a.id, literal(a.name)))
	}
	out := []piece{{raw: fmt.Sprintf(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, literal(said), strings.Join(use, ", "))}}
	for _, a := range list {
		text := strings.Join(a.texts, "\n")
		lead := fmt.Sprintf(`,{"role":"tool","tool_call_id":%q, "content":`, a.id)
		if a.image { // a list, which the document leaves alone
			out = append(out, piece{raw: lead + `[{"type":"text","text":` + literal(text) + `}]}`})
			continue
		}
		out = append(out, piece{raw: lead}, a.piece(text, true), piece{raw: "}"})
	}
	return out
}

// piece is a text of the answer, as JSON.
func (a answer) piece(text string, first bool) piece {
	return piece{raw: literal(text), result: a.id, first: first, plain: !a.image && !a.failed, path: a.path}
}

func (d *dialogue) messages(said string, list []answer) []piece {
	blocks := []string{}
	if d.rnd.IntN(2) == 0 {
		blocks = append(blocks, `{"type":"thinking","thinking":"hm «é»","signature":"c2lnbmVk"}`)
	}
	if said != "" {
		blocks = append(blocks, `{"type":"text","text":`+literal(said)+`}`)
	}
	for _, a := range list {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%s,"input":{}}`, a.id, literal(a.name)))
	}
	out := []piece{{raw: `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]},{"role":"user","content":[`}}
	for i, a := range list {
		if i > 0 {
			out = append(out, piece{raw: ","})
		}
		out = append(out, piece{raw: fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"is_error":%v,"content":`, a.id, a.failed)})
		out = append(out, d.blocks(a, `"text"`, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`)...)
		if i == len(list)-1 {
			out = append(out, piece{marks: true})
		}
		out = append(out, piece{raw: "}"})
	}
	return append(out, piece{raw: "]}"})
}

// blocks is an answer as one text or as a list.
func (d *dialogue) blocks(a answer, kind, image string) []piece {
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

func (d *dialogue) items(said string, list []answer) []piece {
	var out []piece
	if d.rnd.IntN(2) == 0 {
		out = append(out, piece{raw: `{"type":"reasoning","summary":[],"encrypted_content":"Zm9v"},`})
	}
	if said != "" {
		out = append(out, piece{raw: `{"type":"message","role":"assistant","content":[{"type":"output_text","text":` + literal(said) + `}]},`})
	}
	for _, a := range list {
		out = append(out, piece{raw: fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":%s,"arguments":"{}"},`, a.id, literal(a.name))})
	}
	for i, a := range list {
		if i > 0 {
			out = append(out, piece{raw: ","})
		}
		out = append(out, piece{raw: fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":`, a.id)})
		out = append(out, d.blocks(a, `"input_text"`, `{"type":"input_image","image_url":"data:"}`)...)
		out = append(out, piece{raw: "}"})
	}
	return out
}

// request is what the client sends after so many steps.
func (d *dialogue) request(n int) []piece {
	out := []piece{{raw: d.head}}
	for i, s := range d.steps[:n] {
		for _, p := range s.pieces {
			if p.marks && d.habit.marks(i, n) {
				p.raw = ephemeral
			}
			out = append(out, p)
		}
	}
	return append(out, piece{raw: d.foot})
}

func join(pieces []piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.raw)
	}
	return b.String()
}

// turns counts the tool turns of the first steps.
func (d *dialogue) turns(n int) int {
	t := 0
	for _, s := range d.steps[:n] {
		if s.turn {
			t++
		}
	}
	return t
}
