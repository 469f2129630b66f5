// Package gemini is the wire shape of Google's Gemini API.
//
// Path through the files: request.go reads requests; readback.go writes the contents of hidden rounds, merge.go
// merges replies, and restore.go puts hidden rounds back; vendor.go is the rest of the API: errors, keys, model
// lists.
//
// Four things are different from the other shapes. The model and the form of the reply are in the path. Google
// accepts each key in camelCase and in snake_case. Calls and results often have no id: history pairs them by name
// and order. The result of a call is a JSON object, not a text: see [Codec.ReadMessage].
package gemini

import (
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Codec is the [llm.Codec] of the Gemini API.
type Codec struct{}

var wire = llm.Wire{
	Name:        "gemini",
	Vendor:      Vendor{},
	Endpoints:   endpoints(),
	MessagesKey: "contents",
	SyntaxBytes: 25,
	RequestKeys: []string{"contents", "tools", "systemInstruction", "system_instruction", "generationConfig", "generation_config"},
	PromptKeys:  []string{"tools", "systemInstruction", "system_instruction"},
	ToolLists:   []string{"functionDeclarations", "function_declarations"},

	// SDKs repeat a streamed reply as one content for each of its events.
	ReplyIsItems:  true,
	ResultsByName: true,
	Usage: llm.UsageKeys{
		Model: "modelVersion", Object: "usageMetadata",
		Input: "promptTokenCount", MoreInput: []string{"toolUsePromptTokenCount"},
		Output: "candidatesTokenCount", MoreOutput: []string{"thoughtsTokenCount"},
		Cached: []string{"cachedContentTokenCount"}, InList: true, Finish: "finishReason",
	},
}

// endpoints are the paths of the API, in the versions that clients use. What is not a conversation is forwarded as
// it is.
func endpoints() []llm.Endpoint {
	var out []llm.Endpoint
	for _, version := range []string{"v1beta", "v1", "v1alpha"} {
		for _, verb := range []string{"generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents", "predict"} {
			e := llm.Endpoint{UpstreamPath: "/models/" + llm.ModelInPath + ":" + verb, Version: version}
			e.Path = "/" + version + e.UpstreamPath
			switch verb {
			case "streamGenerateContent":
				e.EventsParam = "alt=sse"
				fallthrough
			case "generateContent":
				e.Conversation = true
			}
			out = append(out, e)
		}
	}
	return out
}

// Wire implements [llm.Codec].
func (Codec) Wire() *llm.Wire { return &wire }

func (Codec) String() string { return wire.Name }

// The keys that are read, each in both spellings.
var (
	contentKeys  = []string{"role", "parts"}
	partKeys     = []string{"text", "thought", "thoughtSignature", "thought_signature", "functionCall", "function_call", "functionResponse", "function_response"}
	callKeys     = []string{"id", "name", "args"}
	responseKeys = []string{"id", "name", "response", "parts"}
)

const (
	longText    = 200     // a string of a result with more characters is its text
	shortObject = 4 << 10 // the size of an object up to which its only string is its text, however short
)

// ReadMessage implements [llm.Codec]. Results are parts of the user's contents. Their text is what is long in the
// object that they are: its strings of more than 200 characters, at any depth, or its only string. The first
// becomes the placeholder and the others an ellipsis: numbers, flags and short strings stay, and the object stays
// the same object. Gemini CLI sends {"output": text}, SDKs {"result": …}, and what an MCP server returned is
// {"content": [{"type": "text", "text": …}]}. A result with media in its parts is not masked.
func (Codec) ReadMessage(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message) (err error) {
	var role []byte
	var parts llm.Value
	m.Span, err = r.Object(s, contentKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "role":
			role = r.Text(v)
		case "parts":
			parts = v
		}
	})
	if err != nil {
		return err
	}
	byModel := string(role) == "model"
	m.ByUser = !byModel
	weight := 0
	read := func(s *jsonscan.Scanner) error {
		w, err := readPart(r, s, m, weight)
		weight += w
		return err
	}
	if parts.Len() > 0 && r.Body[parts.Start] == '{' { // Google reads it as a list of one
		err = read(jsonscan.NewAt(r.Body, parts.Start, 0, 0))
	} else {
		err = r.Each(parts.Span, read)
	}
	m.Spoken = len(m.Results) == 0
	m.JoinsTurn = len(m.Calls) > 0
	m.ClosesTurn = len(m.Calls) == 0 && len(m.Results) == 0 && (m.ByUser || weight > 0)
	m.Weight = m.Len() - parts.Len() + weight
	return err
}

// part is one part of a content.
type part struct {
	jsonscan.Span
	text           llm.Value
	call, response llm.Value
	isThought      bool
	signatureBytes int
}

// errTwoSpellings is the error of an object with a key in both spellings: which one counts is unclear.
func errTwoSpellings(at int) error {
	return &jsonscan.Error{Offset: at, Reason: jsonscan.DuplicateKey}
}

func scanPart(r *llm.Reader, s *jsonscan.Scanner) (p part, err error) {
	twice := false
	set := func(to *llm.Value, v llm.Value) {
		twice = twice || to.Len() > 0
		*to = v
	}
	p.Span, err = r.Object(s, partKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "text":
			p.text = v
		case "thought":
			p.isThought = r.Body[v.Start] == 't'
		case "thoughtSignature", "thought_signature":
			p.signatureBytes += len(`,"thoughtSignature":`) + v.Len()
		case "functionCall", "function_call":
			set(&p.call, v)
		case "functionResponse", "function_response":
			set(&p.response, v)
		}
	})
	if err == nil && twice {
		err = errTwoSpellings(p.Start)
	}
	return p, err
}

// readPart reads one part and returns its weight; offset is the weight of the parts before it. Thoughts and
// signatures have no weight: Gemini CLI adds and drops them.
func readPart(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message, offset int) (int, error) {
	p, err := scanPart(r, s)
	if err != nil {
		return 0, err
	}
	switch {
	case p.isThought:
		return 0, nil
	case p.call.Len() > 0 && !m.ByUser:
		err = readCall(r, p.call, m)
	case p.response.Len() > 0 && m.ByUser:
		res, err := readResponse(r, p.response)
		res.Offset = offset
		m.Results = append(m.Results, res)
		return p.Len() - p.signatureBytes, err
	case p.text.IsString:
		m.Prompt = p.text.Span
		return p.text.Str.Len(), nil
	}
	return max(0, p.Len()-p.signatureBytes), err
}

func readCall(r *llm.Reader, v llm.Value, m *llm.Message) error {
	var call llm.Call
	_, err := r.Object(jsonscan.NewAt(r.Body, v.Start, 0, 0), callKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "id":
			call.ID = v
		case "name":
			call.Name = v
		}
	})
	m.Calls = append(m.Calls, call)
	return err
}

// readResponse reads a result.
func readResponse(r *llm.Reader, v llm.Value) (res llm.Result, err error) {
	var object llm.Value
	hasMedia := false
	_, err = r.Object(jsonscan.NewAt(r.Body, v.Start, 0, 0), responseKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "id":
			res.CallID = v
		case "name":
			res.Name = v
		case "response":
			object = v
		case "parts":
			hasMedia = !rawjson.IsEmpty(v.Of(r.Body))
		}
	})
	if err != nil || object.Len() == 0 || r.Body[object.Start] != '{' {
		res.Weight = object.Len()
		return res, err
	}
	res.Content, err = readObject(r.Body, object.Span)
	res.TextOnly = !hasMedia && len(res.Texts) > 0
	res.Failed = hasError(r.Body, object.Span)
	return res, err
}

// readObject finds the texts of a result's object.
func readObject(body []byte, object jsonscan.Span) (c llm.Content, err error) {
	s := jsonscan.NewAt(body, object.Start, 0, 0)
	texts, _, err := s.LongStrings(nil, longText)
	if err == nil && len(texts) == 0 && object.Len() <= shortObject {
		s = jsonscan.NewAt(body, object.Start, 0, 0)
		if texts, _, err = s.LongStrings(nil, 0); len(texts) > 1 {
			texts = nil
		}
	}
	c.Weight = object.Len()
	for _, t := range texts {
		c.Texts = append(c.Texts, t.Span)
		c.Chars += t.Chars
	}
	return c, err
}

// hasError says whether a result says that its call failed: by a member error, as Gemini CLI and the SDKs have it,
// or as MCP servers do.
func hasError(body []byte, object jsonscan.Span) bool {
	failed := false
	rawjson.EachMember(body, object, func(key []byte, value jsonscan.Span) {
		switch raw := value.Of(body); string(key) {
		case "error":
			failed = failed || !rawjson.IsEmpty(raw) && string(raw) != "false"
		case "isError":
			failed = failed || string(raw) == "true"
		}
	})
	return failed
}

// member is a member of an object, in either spelling.
func member(f jsonscan.Fields, camel, snake string) (jsonscan.Field, bool) {
	if v, ok := f.Field(camel); ok {
		return v, true
	}
	return f.Field(snake)
}

// partSpans are the parts of a content.
func partSpans(body []byte, content jsonscan.Fields) []jsonscan.Span {
	parts, ok := content.Field("parts")
	if ok && body[parts.Value.Start] == '{' {
		return []jsonscan.Span{parts.Value}
	}
	return rawjson.ElementSpans(body, parts.Value)
}

// CallArguments implements [llm.Codec].
func (Codec) CallArguments(body []byte, message jsonscan.Span, callID string, limit int) (args []byte, found bool) {
	content, err := jsonscan.ReadFields(body, message)
	if err != nil || content.Text("role") != "model" {
		return nil, false
	}
	index, unnamed := llm.UnnamedCallIndex(callID)
	n := 0
	for _, at := range partSpans(body, content) {
		fields, err := jsonscan.ReadFields(body, at)
		f, ok := member(fields, "functionCall", "function_call")
		if err != nil || !ok {
			continue
		}
		call, err := jsonscan.ReadFields(body, f.Value)
		if id := call.Text("id"); err == nil && (id == callID || id == "" && unnamed && n == index && strings.HasPrefix(callID, call.Text("name")+"-")) {
			if raw, ok := call.Get("args"); ok && len(raw) <= limit {
				args = raw
			}
			return args, true
		}
		n++
	}
	return nil, false
}

// DigestMessage implements [llm.Codec]. Thoughts and signatures do not count, because clients add and drop them,
// nor do the texts beside results.
func (Codec) DigestMessage(d llm.Digest, body []byte, message jsonscan.Span, spoken bool) {
	content, err := jsonscan.ReadFields(body, message)
	if err != nil {
		return
	}
	d.Part("message", nil)
	if role, ok := content.Get("role"); ok {
		d.Value("role", role)
	}
	for _, at := range partSpans(body, content) {
		fields, err := jsonscan.ReadFields(body, at)
		if raw, _ := fields.Get("thought"); err != nil || string(raw) == "true" {
			continue
		}
		for _, f := range fields.All() {
			switch f.Key {
			case "thoughtSignature", "thought_signature", "thought":
			case "text":
				if spoken {
					d.Value("text", f.Value.Of(body))
				}
			default:
				digestPart(d, body, f)
			}
		}
	}
}

// digestPart digests a part that is not a text: the members of a call or a result, or the part as it is.
func digestPart(d llm.Digest, body []byte, f jsonscan.Field) {
	inner, err := jsonscan.ReadFields(body, f.Value)
	if err != nil {
		d.Value("part", f.Value.Of(body))
		return
	}
	d.Part("part", nil)
	for _, f := range inner.All() {
		d.Value(f.Key, f.Value.Of(body))
	}
}

// ToolName implements [llm.Codec].
func (Codec) ToolName(body []byte, tool jsonscan.Span) string {
	fields, err := jsonscan.ReadFields(body, tool)
	if err != nil {
		return ""
	}
	return fields.Text("name")
}
