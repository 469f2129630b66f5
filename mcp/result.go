package mcp

import (
	"net/http"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/rpc"
)

// The kinds of result.
const (
	typeComplete = "complete"
	typeInput    = "input_required"
)

// Result is a reply's result laid open, as far as the eras differ in it.
type Result struct {
	m      rpc.Message
	fields jsonscan.Fields
}

// ReadResult lays a result open. The result of an error reply has no fields.
func ReadResult(m rpc.Message) (Result, error) {
	if m.IsError {
		return Result{m: m}, nil
	}
	fields, err := jsonscan.ReadFields(m.Body, m.Result)
	return Result{m, fields}, err
}

// NeedsInput says that the server cannot answer before it is told more.
func (r Result) NeedsInput() bool { return r.fields.Text("resultType") == typeInput }

// Size is how many bytes the whole reply has.
func (r Result) Size() int { return len(r.m.Body) }

// Get is a member's raw value.
func (r Result) Get(key string) ([]byte, bool) { return r.fields.Get(key) }

// Field is where a member stands in the reply's body.
func (r Result) Field(key string) (jsonscan.Field, bool) { return r.fields.Field(key) }

// Dress gives the edits that turn a complete result of any era into one of the asked era. The
// newer era wants to be told that a result is complete and, of what can be cached, for how long;
// where the server did not say, it is not to be cached.
func (r Result) Dress(era Era, method string) []jsonscan.Edit {
	if r.m.IsError || len(r.m.Result.Of(r.m.Body)) == 0 || r.m.Body[r.m.Result.Start] != '{' {
		return nil
	}
	if era != EraModern {
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

// DressError gives the edit that turns the code for a resource that is not there into that of
// the asked era.
func DressError(m rpc.Message, era Era, method string) []jsonscan.Edit {
	if !m.IsError || method != ResourcesRead {
		return nil
	}
	fields, err := jsonscan.ReadFields(m.Body, m.Error)
	if err != nil {
		return nil
	}
	code, _ := fields.Get("code")
	if era == EraModern && string(code) == "-32002" {
		return fields.Edits(jsonscan.Change{Key: "code", Value: []byte("-32602")})
	}
	return nil
}

// Status is the HTTP status that the newer era asks for with some errors; 0 for none in particular.
func Status(m rpc.Message, era Era) int {
	if !m.IsError || era != EraModern {
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

// Inputs are what a server wants to be told, in its order.
func (r Result) Inputs() ([]Input, error) {
	field, ok := r.fields.Field("inputRequests")
	if !ok {
		return nil, nil
	}
	all, err := jsonscan.ReadFields(r.m.Body, field.Value)
	if err != nil {
		return nil, err
	}
	var out []Input
	for _, f := range all.All() {
		q, err := jsonscan.ReadFields(r.m.Body, f.Value)
		if err != nil {
			return nil, err
		}
		params, _ := q.Get("params")
		out = append(out, Input{Key: f.Key, Method: q.Text("method"), Params: params})
	}
	return out, nil
}

// Input is one thing a server wants to be told.
type Input struct {
	Key    string
	Method string
	Params []byte
}

// AppendInputs appends a result that asks for input.
func AppendInputs(dst []byte, inputs []Input, state string) []byte {
	dst = append(dst, `{"resultType":"`+typeInput+`","inputRequests":{`...)
	for i, in := range inputs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonscan.AppendString(dst, in.Key), `:{"method":`...)
		dst = jsonscan.AppendString(dst, in.Method)
		if len(in.Params) > 0 {
			dst = append(append(dst, `,"params":`...), in.Params...)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `},"requestState":`...)
	return append(jsonscan.AppendString(dst, state), '}')
}
