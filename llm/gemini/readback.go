package gemini

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// ReadStatement implements [llm.ReadbackCodec].
func (Codec) ReadStatement(st *llm.Statement, body []byte, message jsonscan.Span) bool {
	content, err := jsonscan.ReadFields(body, message)
	if err != nil || content.Text("role") != "model" {
		return false
	}
	for _, at := range partSpans(body, content) {
		addPart(st, at.Of(body))
	}
	return true
}

// addPart adds a part of the model's output.
func addPart(st *llm.Statement, raw []byte) {
	switch p := readOutput(raw); p.kind {
	case textPart:
		st.Text += p.text
	case callPart:
		st.AddCall(p.callID())
	case thoughtPart, otherPart:
	}
}

// ReadSaid implements [llm.ReadbackCodec].
func (Codec) ReadSaid(st *llm.Statement, said []byte) {
	for _, raw := range rawjson.Elements(said) {
		addPart(st, raw)
	}
}

// ReadReply implements [llm.ReadbackCodec].
func (c Codec) ReadReply(st *llm.Statement, document []byte) {
	c.ReadSaid(st, rawjson.Inner(firstCandidate(document), "content", "parts"))
}

// ReadReplyEvent implements [llm.ReadbackCodec]. The last event has the reason why the reply ended.
func (c Codec) ReadReplyEvent(st *llm.Statement, data []byte) bool {
	c.ReadReply(st, data)
	return rawjson.IsSet(rawjson.Inner(firstCandidate(data), "finishReason"))
}

func firstCandidate(data []byte) []byte {
	if list := rawjson.Elements(rawjson.Inner(data, "candidates")); len(list) > 0 {
		return list[0]
	}
	return nil
}

// ToolEntry implements [llm.ReadbackCodec].
func (Codec) ToolEntry(name, description, schema string) string {
	return `{"name":"` + name + `","description":` + description + `,"parametersJsonSchema":` + schema + `}`
}

// MayOffer implements [llm.ReadbackCodec]. The rounds of several candidates cannot be told apart. Calls whose
// arguments come in pieces are not put together.
func (Codec) MayOffer(member func(key string) []byte) bool {
	for _, key := range []string{"toolConfig", "tool_config"} {
		for _, pieces := range []string{`"streamFunctionCallArguments"`, `"stream_function_call_arguments"`} {
			if bytes.Contains(member(key), []byte(pieces)) {
				return false
			}
		}
	}
	for _, key := range []string{"generationConfig", "generation_config"} {
		for _, count := range []string{"candidateCount", "candidate_count"} {
			raw := rawjson.Inner(member(key), count)
			if n, err := strconv.ParseFloat(string(raw), 64); rawjson.IsSet(raw) && (err != nil || n != 1) {
				return false
			}
		}
	}
	return true
}

// AppendSaid implements [llm.ReadbackCodec].
func (Codec) AppendSaid(dst, said []byte) []byte {
	return append(append(append(dst, `{"role":"model","parts":`...), said...), '}')
}

// AppendAnswers implements [llm.ReadbackCodec].
func (Codec) AppendAnswers(dst []byte, answers []llm.Answer) []byte {
	dst = append(dst, `{"role":"user","parts":[`...)
	return append(appendResults(dst, answers), `]}`...)
}

// noID begins the ids that calls without one get here: results of such calls have none.
const noID = "\x00"

func appendResults(dst []byte, answers []llm.Answer) []byte {
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"functionResponse":{`...)
		if !strings.HasPrefix(a.ID, noID) {
			dst = append(jsonscan.AppendQuoted(append(dst, `"id":`...), a.ID), ',')
		}
		dst = append(dst, `"name":"`+recovertool.Name+`","response":{`...)
		key := `"output":`
		if a.Failed {
			key = `"error":`
		}
		dst = append(jsonscan.AppendQuoted(append(dst, key...), a.Text), `}}}`...)
	}
	return dst
}

// NewStreamMerger implements [llm.ReadbackCodec].
func (Codec) NewStreamMerger(b *llm.EventBuffer) llm.StreamMerger {
	return &streamMerger{EventBuffer: b}
}

// NewDocumentMerger implements [llm.ReadbackCodec].
func (Codec) NewDocumentMerger() llm.DocumentMerger { return &documentMerger{} }

// output is a part of the model's output.
type output struct {
	kind     partKind
	text     string // of a text or a thought
	id, name string // of a call
	args     []byte // of a call
	isPlain  bool   // it has no other members: a signature, for one
}

type partKind uint8

const (
	otherPart partKind = iota
	textPart
	thoughtPart
	callPart
)

func readOutput(raw []byte) (p output) {
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return p
	}
	thought, _ := fields.Get("thought")
	if f, ok := member(fields, "functionCall", "function_call"); ok {
		call := f.Value.Of(raw)
		return output{kind: callPart, id: jsonscan.DecodeString(rawjson.Member(call, "id")), name: jsonscan.DecodeString(rawjson.Member(call, "name")), args: rawjson.Member(call, "args")}
	}
	if text, ok := fields.Get("text"); ok && text[0] == '"' {
		p.kind, p.text = textPart, jsonscan.DecodeString(text)
	}
	members := 1
	if string(thought) == "true" {
		p.kind, members = thoughtPart, 2
	}
	p.isPlain = len(fields.All()) == members
	return p
}

// callID is the id of a call, or its name if it has none.
func (p *output) callID() string { return cmp.Or(p.id, p.name) }

func (p *output) isRecoverCall() bool { return p.kind == callPart && p.name == recovertool.Name }

// newRound makes a round of the parts; nil if its calls cannot be answered.
func (s *said) newRound(reason string) *llm.Round {
	s.closeText()
	if reason != "STOP" {
		return nil // the last call is truncated or not intended
	}
	var r llm.Round
	for i, raw := range s.parts {
		p := readOutput(raw)
		switch {
		case p.isRecoverCall():
			if p.id == "" {
				p.id = noID + strconv.Itoa(i)
			}
			r.Calls = append(r.Calls, llm.RecoverCall{ID: p.id, Args: llm.ArgsOf(string(p.args))})
			continue
		case p.kind == callPart:
			r.Others = append(r.Others, p.callID())
		}
		r.Shown++
	}
	r.Said = rawjson.Array(s.parts...)
	return r.IfAnswerable()
}

// said collects the model's output. Texts that follow each other become one, as a reply that is not streamed has
// them; a part with a signature stays by itself, because the signature is of that part. Empty texts without one are
// left out: providers refuse them.
type said struct {
	parts [][]byte
	open  partKind // of the texts that are collected; otherPart: none
	text  []byte   // raw
}

func (s *said) add(raw []byte) {
	p := readOutput(raw)
	if !p.isPlain || p.kind != textPart && p.kind != thoughtPart {
		s.closeText()
		s.parts = append(s.parts, raw)
		return
	}
	if p.text == "" {
		return
	}
	if p.kind != s.open {
		s.closeText()
		s.open = p.kind
	}
	s.text = append(s.text, rawjson.Unwrap(rawjson.Member(raw, "text"))...)
}

func (s *said) closeText() {
	switch s.open {
	case textPart:
		s.parts = append(s.parts, slices.Concat([]byte(`{"text":"`), s.text, []byte(`"}`)))
	case thoughtPart:
		s.parts = append(s.parts, slices.Concat([]byte(`{"text":"`), s.text, []byte(`","thought":true}`)))
	case callPart, otherPart:
	}
	s.open, s.text = otherPart, nil
}
