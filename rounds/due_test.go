package rounds

import (
	"encoding/json"
	"testing"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// H+5: calls that wait at the provider are answered before anything else is said.
func TestDue(t *testing.T) {
	rec := &Record{}
	rec.Add(&Round{}, answer("r1"))
	const first = `{"type":"function_call_output","call_id":"r1","output":"original of r1"}`
	for body, want := range map[string]string{
		`{"previous_response_id":"p","input":"go \u00e9"}`: `{"previous_response_id":"p","input":[` + first + `,{"role":"user","content":"go \u00e9"}]}`,
		`{"previous_response_id":"p","input":[ {"a":1}]}`:  `{"previous_response_id":"p","input":[ ` + first + `,{"a":1}]}`,
		`{"previous_response_id":"p","input":[ ]}`:         `{"previous_response_id":"p","input":[ ` + first + `]}`,
	} {
		edits, err := rec.Due([]byte(body))
		got := jsonscan.AppendSpliced(nil, []byte(body), edits)
		if err != nil || string(got) != want || !json.Valid(got) || Previous(read(t, history.Responses, string(got))) != "p" {
			t.Errorf("%s became %s, %v", body, got, err)
		}
	}
	for _, body := range []string{`{}`, `{"input":7}`, `[`} {
		if edits, err := rec.Due([]byte(body)); err == nil {
			t.Errorf("%s: got %v", body, edits)
		}
	}
}

func TestReplyID(t *testing.T) {
	for _, c := range []struct {
		end    string
		stream bool
		want   string
	}{
		{`{"id":"r1","output":[]}`, false, "r1"},
		{`[`, false, ""},
		{"event: x\ndata: {\"type\":\"x\",\"item\":{\"id\":\"no\"}}\n\nevent: response.completed\r\ndata: {\"response\":{\"id\":\"r2\"}}\r\n\r\n", true, "r2"},
		{"data: [DONE]\n\n", true, ""},
		{"", true, ""},
	} {
		if got := ReplyID(history.Responses, []byte(c.end), c.stream); got != c.want {
			t.Errorf("%q: got %q", c.end, got)
		}
	}
}
