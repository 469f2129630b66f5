package sdktest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// readResponse reads a reply with the official SDK. The events of a stream are numbered without gaps, and
// their deltas add up to the final items.
func readResponse(t *testing.T, stream bool, body []byte) responses.Response {
	t.Helper()
	c := openaiClient(serveBody(t, stream, body))
	params := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("?")}}
	if !stream {
		got, err := c.Responses.New(t.Context(), params)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		return *got
	}
	s := c.Responses.NewStreaming(t.Context(), params)
	defer s.Close()
	var last responses.Response
	var text string
	var items []string
	n, begun := int64(0), 0
	for s.Next() {
		e := s.Current()
		if e.SequenceNumber != n {
			t.Fatalf("event %d is %s", n, e.RawJSON())
		}
		n++
		switch e.Type {
		case "response.created":
			begun++
		case "response.output_text.delta":
			text += e.Delta
		case "response.output_item.added":
			if e.OutputIndex != int64(len(items)) {
				t.Errorf("item %d is %s", len(items), e.RawJSON())
			}
			items = append(items, "")
		case "response.output_item.done":
			items[e.OutputIndex] = e.Item.ID
		case "response.completed", "response.incomplete":
			last = e.Response
		}
	}
	if s.Err() != nil || begun != 1 {
		t.Fatalf("%v, begun %d times\n%s", s.Err(), begun, body)
	}
	var ids []string
	for _, it := range last.Output {
		ids = append(ids, it.ID)
	}
	if d := cmp.Diff(items, ids); d != "" || text != last.OutputText() {
		t.Errorf("the end is not what was streamed: %q, %q, %s", text, last.OutputText(), d)
	}
	return last
}

// H+5: the client receives one response.
func TestJoinResponses(t *testing.T) {
	forBothStreamings(t, func(t *testing.T, stream bool) {
		for _, turn := range readbackTurns() {
			t.Run(turn.name, func(t *testing.T) {
				got := runTurn(t, openAIResponses, stream, turn.maxRounds, turn.steps...)
				r := readResponse(t, stream, got.merged)
				turn.checkTurn(t, got)
				var calls []string
				for _, it := range r.Output {
					if it.Type == "function_call" {
						calls = append(calls, it.CallID)
						if it.Name != "look" || it.AsFunctionCall().Arguments != look("").Args {
							t.Errorf("call %s", it.RawJSON())
						}
					}
				}
				if d := cmp.Diff(turn.calls, calls); d != "" || r.OutputText() != turn.text || (turn.finishReason == "length") != (r.Status == "incomplete") {
					t.Errorf("%q, %s, %s", r.OutputText(), r.Status, d)
				}
				want, u := got.bill.Total(), r.Usage
				if u.InputTokens != int64(want.Input()) || u.OutputTokens != int64(want.Output) || u.TotalTokens != int64(want.Input()+want.Output) || u.InputTokensDetails.CachedTokens != int64(want.CacheRead) {
					t.Errorf("usage %+v, bill %+v", u, want)
				}
			})
		}
	})
}
