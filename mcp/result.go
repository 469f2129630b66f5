package mcp

import (
	"net/http"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/rpc"
)

// The values of resultType.
const (
	typeComplete      = "complete"
	typeInputRequired = "input_required"
)

// Result is the parsed result of a reply.
type Result struct {
	m      rpc.Message
	fields jsonscan.Fields
}

// ParseResult parses the result of a reply. The result of an error reply has no fields.
func ParseResult(m rpc.Message) (Result, error) {
	if m.IsError {
		return Result{m: m}, nil
	}
	fields, err := jsonscan.ReadFields(m.Body, m.Result)
	return Result{m, fields}, err
}

// NeedsInput reports whether the server asks for input before it can answer.
func (r Result) NeedsInput() bool { return r.fields.Text("resultType") == typeInputRequired }

// Size is the size of the whole reply in bytes.
func (r Result) Size() int { return len(r.m.Body) }

// Get is a member's raw value.
func (r Result) Get(key string) ([]byte, bool) { return r.fields.Get(key) }

// Field locates a member in the reply's body.
func (r Result) Field(key string) (jsonscan.Field, bool) { return r.fields.Field(key) }

// Translate gives the edits that turn a complete result of any protocol into one of protocol to. Modern
// results state that they are complete and, for resources/read, how long they may be cached; a result
// that does not say is not to be cached.
func (r Result) Translate(to Protocol, method string) []jsonscan.Edit {
	if r.m.IsError || len(r.m.Result.Of(r.m.Body)) == 0 || r.m.Body[r.m.Result.Start] != '{' {
		return nil
	}
	if to != Modern {
		if _, ok := r.fields.Get("resultType"); ok {
			return r.fields.Edits(jsonscan.Change{Key: "resultType"})
		}
		return nil
	}
	var changes []jsonscan.Change
	add := func(key, value string) {
		if _, ok := r.fields.Get(key); !ok {
			changes = append(changes, jsonscan.Change{Key: key, Value: []byte(value)})
		}
	}
	add("resultType", `"`+typeComplete+`"`)
	if method == ResourcesRead {
		add("ttlMs", "0")
		add("cacheScope", `"private"`)
	}
	return r.fields.Edits(changes...)
}

// TranslateError gives the edit that turns the error code for a missing resource into that of protocol
// to.
func TranslateError(m rpc.Message, to Protocol, method string) []jsonscan.Edit {
	if !m.IsError || method != ResourcesRead {
		return nil
	}
	fields, err := jsonscan.ReadFields(m.Body, m.Error)
	if err != nil {
		return nil
	}
	code, _ := fields.Get("code")
	if to == Modern && string(code) == "-32002" {
		return fields.Edits(jsonscan.Change{Key: "code", Value: []byte("-32602")})
	}
	return nil
}

// HTTPStatus is the HTTP status that the modern protocol requires with some errors; 0 for none in
// particular.
func HTTPStatus(m rpc.Message, p Protocol) int {
	if !m.IsError || p != Modern {
		return 0
	}
	fields, err := jsonscan.ReadFields(m.Body, m.Error)
	if err != nil {
		return 0
	}
	switch code, _ := fields.Get("code"); string(code) {
	case "-32020", "-32021", "-32022":
		return http.StatusBadRequest
	case "-32601":
		return http.StatusNotFound
	}
	return 0
}

// InputRequests lists the input that the server asks for, in its order.
func (r Result) InputRequests() ([]InputRequest, error) {
	field, ok := r.fields.Field("inputRequests")
	if !ok {
		return nil, nil
	}
	all, err := jsonscan.ReadFields(r.m.Body, field.Value)
	if err != nil {
		return nil, err
	}
	var out []InputRequest
	for _, f := range all.All() {
		q, err := jsonscan.ReadFields(r.m.Body, f.Value)
		if err != nil {
			return nil, err
		}
		params, _ := q.Get("params")
		out = append(out, InputRequest{Key: f.Key, Method: q.Text("method"), Params: params})
	}
	return out, nil
}

// InputRequest is one input that a server asks for.
type InputRequest struct {
	Key    string
	Method string
	Params []byte
}

// AppendInputRequired appends an input_required result.
func AppendInputRequired(dst []byte, inputs []InputRequest, state string) []byte {
	dst = append(dst, `{"resultType":"`+typeInputRequired+`","inputRequests":{`...)
	for i, in := range inputs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonscan.AppendQuoted(dst, in.Key), `:{"method":`...)
		dst = jsonscan.AppendQuoted(dst, in.Method)
		if len(in.Params) > 0 {
			dst = append(append(dst, `,"params":`...), in.Params...)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `},"requestState":`...)
	return append(jsonscan.AppendQuoted(dst, state), '}')
}

// Content locates the resource URIs and the binary data of a result.
type Content struct {
	URIs   []jsonscan.Span // raw strings, quotes included
	Binary []jsonscan.Span // raw strings, quotes included
}

// ParseContent searches the content blocks of a tool result, a resource or a prompt: content, contents,
// and the content of messages. Other members have no meaning here.
func ParseContent(m rpc.Message) (c Content, err error) {
	result, err := ParseResult(m)
	if err != nil {
		return c, err
	}
	for _, key := range []string{"content", "contents"} {
		if f, ok := result.Field(key); ok {
			err = c.addBlocks(m.Body, f.Value)
		}
		if err != nil {
			return c, err
		}
	}
	messages, ok := result.Field("messages")
	if !ok {
		return c, nil
	}
	return c, jsonscan.EachElement(m.Body, messages.Value, func(s jsonscan.Span) error {
		message, err := jsonscan.ReadFields(m.Body, s)
		if err != nil {
			return err
		}
		if f, ok := message.Field("content"); ok {
			return c.addBlocks(m.Body, f.Value)
		}
		return nil
	})
}

// addBlocks reads one block, or an array of them.
func (c *Content) addBlocks(body []byte, at jsonscan.Span) error {
	if body[at.Start] == '{' {
		return c.addBlock(body, at)
	}
	return jsonscan.EachElement(body, at, func(s jsonscan.Span) error { return c.addBlock(body, s) })
}

func (c *Content) addBlock(body []byte, at jsonscan.Span) error {
	b, err := jsonscan.ReadFields(body, at)
	if err != nil {
		return err
	}
	for _, f := range b.All() {
		switch f.Key {
		case "uri":
			c.URIs = appendString(c.URIs, body, f.Value)
		case "blob":
			c.Binary = appendString(c.Binary, body, f.Value)
		case "data":
			if t := b.Text("type"); t == "image" || t == "audio" {
				c.Binary = appendString(c.Binary, body, f.Value)
			}
		case "resource":
			if err := c.addBlock(body, f.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func appendString(dst []jsonscan.Span, body []byte, at jsonscan.Span) []jsonscan.Span {
	if body[at.Start] == '"' {
		return append(dst, at)
	}
	return dst
}
