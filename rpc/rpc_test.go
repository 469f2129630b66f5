package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

func TestParseRequest(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     Request
		id       string
	}{
		{"a call", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"a":1}}}`, Request{Method: "tools/call", Name: "read"}, "1"},
		{"keys in any order", `{"params":{"uri":"file:///x"},"method":"resources/read","id":"a","jsonrpc":"2.0"}`, Request{Method: "resources/read", URI: "file:///x"}, `"a"`},
		{"escapes are read", `{"jsonrpc":"\u0032.0","id":"\u0061","method":"tools\/call","params":{"n\u0061me":"r\u00e9"}}`, Request{Method: "tools/call", Name: "ré"}, `"\u0061"`},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, Request{Method: "notifications/initialized"}, ""},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, Request{Method: "ping"}, "null"},
		{"a big id keeps its digits", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, Request{Method: "ping"}, "9007199254740993"},
		{"a fraction keeps its zero", `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, Request{Method: "ping"}, "1.0"},
		{"params as a list", `{"jsonrpc":"2.0","id":1,"method":"x","params":[1,{"name":"no"}]}`, Request{Method: "x"}, "1"},
		{"a name that is no text", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":5,"uri":null}}`, Request{Method: "x"}, "1"},
		{"unknown members", `{"x":{"y":[1]},"jsonrpc":"2.0","id":1,"method":"x"}`, Request{Method: "x"}, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequest([]byte(tt.in), 64)
			if err != nil {
				t.Fatal(err)
			}
			if got.Method != tt.want.Method || got.Name != tt.want.Name || got.URI != tt.want.URI {
				t.Errorf("got %q %q %q", got.Method, got.Name, got.URI)
			}
			if got.IsNotification() != (tt.id == "") || !got.IsNotification() && string(got.ID.Raw()) != tt.id {
				t.Errorf("id %s, want %s", got.ID.Raw(), tt.id)
			}
			if string(got.Body) != tt.in {
				t.Error("the body changed")
			}
		})
	}
}

// Rejected envelopes (G5): what is rejected, with which kind, and whether the id can still be read.
func TestParseRequestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		kind     fault.Kind
		id       string
	}{
		{"nothing", ``, fault.Syntax, "null"},
		{"not JSON", `{"jsonrpc":"2.0","id":7,"method"`, fault.Syntax, "null"},
		{"trailing data", `{"jsonrpc":"2.0","id":7,"method":"x"}{}`, fault.Syntax, "null"},
		{"lone surrogate", `{"jsonrpc":"2.0","id":7,"method":"x\ud800"}`, fault.Syntax, "null"},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}", fault.Syntax, "null"},
		{"a byte order mark", "\ufeff{}", fault.Syntax, "null"},
		{"broken list", `[1,`, fault.Syntax, "null"},
		{"list and more", `[] []`, fault.Syntax, "null"},
		{"a batch", `[{"jsonrpc":"2.0","id":7,"method":"x"}]`, fault.InvalidRequest, "null"},
		{"a string", `"x"`, fault.InvalidRequest, "null"},
		{"no version", `{"id":7,"method":"x"}`, fault.InvalidRequest, "7"},
		{"version 1.0", `{"jsonrpc":"1.0","id":7,"method":"x"}`, fault.InvalidRequest, "7"},
		{"version as a number", `{"jsonrpc":2.0,"id":7,"method":"x"}`, fault.InvalidRequest, "7"},
		{"no method", `{"jsonrpc":"2.0","id":7}`, fault.InvalidRequest, "7"},
		{"empty method", `{"jsonrpc":"2.0","id":7,"method":""}`, fault.InvalidRequest, "7"},
		{"method as a number", `{"jsonrpc":"2.0","id":7,"method":1}`, fault.InvalidRequest, "7"},
		{"a reply", `{"jsonrpc":"2.0","id":7,"result":{}}`, fault.InvalidRequest, "7"},
		{"a reply with a method", `{"jsonrpc":"2.0","id":7,"method":"x","error":{}}`, fault.InvalidRequest, "7"},
		{"params as text", `{"jsonrpc":"2.0","id":7,"method":"x","params":"y"}`, fault.InvalidRequest, "7"},
		{"params null", `{"jsonrpc":"2.0","method":"x","params":null,"id":7}`, fault.InvalidRequest, "7"},
		{"id as an object", `{"jsonrpc":"2.0","id":{},"method":"x"}`, fault.InvalidRequest, "null"},
		{"id as a boolean", `{"jsonrpc":"2.0","id":true,"method":"x"}`, fault.InvalidRequest, "null"},
		{"method twice", `{"jsonrpc":"2.0","method":"x","method":"y","id":7}`, fault.InvalidRequest, "7"},
		{"id twice", `{"jsonrpc":"2.0","id":7,"method":"x","id":8}`, fault.InvalidRequest, "null"},
		{"id in two cases", `{"jsonrpc":"2.0","id":7,"method":"x","ID":8}`, fault.InvalidRequest, "null"},
		{"folded method", `{"jsonrpc":"2.0","id":7,"method":"x","Method":"y"}`, fault.InvalidRequest, "7"},
		{"folded params", `{"jsonrpc":"2.0","id":7,"method":"x","paramſ":{}}`, fault.InvalidRequest, "7"},
		{"name twice", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"name":"a","n\u0061me":"b"}}`, fault.InvalidRequest, "7"},
		{"folded name", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"name":"a","Name":"b"}}`, fault.InvalidRequest, "7"},
		{"a key twice deep down", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"arguments":{"p":[{"q":1,"q":2}]}}}`, fault.InvalidRequest, "7"},
		{"a key twice in a list of params", `{"jsonrpc":"2.0","id":7,"method":"x","params":[{"q":1,"q":2}]}`, fault.InvalidRequest, "7"},
		{"a key twice in an unknown member", `{"jsonrpc":"2.0","id":7,"method":"x","z":{"q":1,"q":2}}`, fault.InvalidRequest, "7"},
		{"too deep", `{"jsonrpc":"2.0","id":7,"method":"x","params":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, fault.InvalidRequest, "null"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequest([]byte(tt.in), 64)
			if err == nil {
				t.Fatal("accepted")
			}
			if k := fault.KindOf(err); k != tt.kind {
				t.Errorf("kind %v (%v), want %v", k, err, tt.kind)
			}
			if string(got.ID.Raw()) != tt.id {
				t.Errorf("id %s, want %s", got.ID.Raw(), tt.id)
			}
			if fault.PublicOf(err) == "internal error" {
				t.Error("a refusal must say why")
			}
		})
	}
}

func TestParseReply(t *testing.T) {
	in := `{"result":{"content":[{"type":"text","text":"0123456789"}],"n":1.50},"jsonrpc":"2.0","id":"x"}`
	got, err := ParseReply([]byte(in), 64, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.LongStrings) != 1 || string(got.LongStrings[0].Of(got.Body)) != "0123456789" {
		t.Errorf("strings %v", got.LongStrings)
	}
	if id := got.MessageID(); string(id.Raw()) != `"x"` {
		t.Errorf("id %s", id.Raw())
	}
	for _, ok := range []string{
		`{"jsonrpc":"2.0","id":1,"result":null}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"0123456789"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`,
	} {
		if got, err := ParseReply([]byte(ok), 64, 5); err != nil || len(got.LongStrings) != 0 {
			t.Errorf("%s: %v, %v", ok, got.LongStrings, err)
		}
	}
	withData := `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"0123456789","data":{"log":["0123456789"]}}}`
	if got, err := ParseReply([]byte(withData), 64, 5); err != nil || len(got.LongStrings) != 1 || !got.IsError {
		t.Errorf("only error.data is searched: %v, %v", got.LongStrings, err)
	}
}

func TestParseReplyRefusals(t *testing.T) {
	for _, in := range []string{
		``, `<html>`, `[]`, `"x"`, `[`, `{}`, `{"jsonrpc":"2.0","id":1}`, `{"id":1,"result":1}`, `{"jsonrpc":"2.0","result":1}`,
		`{"jsonrpc":"2.0","id":1,"error":null}`, `{"jsonrpc":"2.0","id":1,"error":"x"}`, `{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":1,"result":2}`, `{"jsonrpc":"2.0","id":1,"result":1,"Result":2}`, `{"jsonrpc":"2.0","id":[],"result":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{}}`, `{"jsonrpc":"2.0","id":1,"result":1} x`, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"data":1,"data":2}}`,
	} {
		_, err := ParseReply([]byte(in), 64, 5)
		if fault.KindOf(err) != fault.BadReply {
			t.Errorf("%s: %v", in, err)
		}
	}
	if id := (&Reply{}).MessageID(); id.IsSet() {
		t.Error("an empty reply has no id")
	}
}

func TestIDEqual(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1`, true}, {`1`, `1.0`, true}, {`1`, `"1"`, false}, {`"a"`, `"\u0061"`, true}, {`"a"`, `"b"`, false},
		{`null`, `null`, true}, {`null`, `0`, false}, {`9007199254740993`, `9007199254740992`, true}, {`1`, `2`, false}, {`1e2`, `100`, true},
	} {
		if got := RawID([]byte(tt.a)).Equal(RawID([]byte(tt.b))); got != tt.same {
			t.Errorf("%s is %s: %v", tt.a, tt.b, got)
		}
	}
}

func TestAppendError(t *testing.T) {
	got := AppendError(nil, RawID([]byte(`"a\u0062"`)), -32001, "no \"x\"\nhere", "not_found")
	want := `{"jsonrpc":"2.0","id":"a\u0062","error":{"code":-32001,"message":"no \"x\"\nhere","data":{"reason":"not_found"}}}`
	if string(got) != want || !json.Valid(got) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := AppendError(nil, ID{}, 1, "x", ""); !bytes.Contains(got, []byte(`"id":null`)) || bytes.Contains(got, []byte("data")) {
		t.Errorf("got %s", got)
	}
	if _, err := ParseReply(got, 64, 4000); err != nil {
		t.Error(err)
	}
}

// toFault passes errors that do not come from the scanner.
func TestToFaultPassesOtherErrors(t *testing.T) {
	err := invalid("x")
	if !errors.Is(toFault(err), err) || toFault(err).Error() != err.Error() {
		t.Error("changed")
	}
	if k := fault.KindOf(toFault(&jsonscan.Error{Reason: jsonscan.TooDeep})); k != fault.InvalidRequest {
		t.Errorf("kind %v", k)
	}
}
