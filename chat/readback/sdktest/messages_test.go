package sdktest

import (
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
)

// readMessage reads a reply with the official SDK.
func readMessage(t *testing.T, stream bool, body []byte) anthropic.Message {
	t.Helper()
	c := anthropic.NewClient(option.WithBaseURL(serveBody(t, stream, body)), option.WithAPIKey("k"), option.WithMaxRetries(0))
	params := anthropic.MessageNewParams{Model: "m", MaxTokens: 9, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("?"))}}
	if !stream {
		got, err := c.Messages.New(t.Context(), params)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		return *got
	}
	s := c.Messages.NewStreaming(t.Context(), params)
	defer s.Close()
	var acc anthropic.Message
	ends := 0
	for s.Next() {
		if err := acc.Accumulate(s.Current()); err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		if s.Current().Type == "message_stop" {
			ends++
		}
	}
	if s.Err() != nil || ends != 1 {
		t.Fatalf("%v, %d ends\n%s", s.Err(), ends, body)
	}
	return acc
}

// H+5: the client receives one message with all thinking.
func TestJoinMessages(t *testing.T) {
	reasons := map[string]anthropic.StopReason{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
	forBothStreamings(t, func(t *testing.T, stream bool) {
		for _, turn := range readbackTurns() {
			t.Run(turn.name, func(t *testing.T) {
				got := runTurn(t, anthropicMessages, stream, turn.maxRounds, turn.steps...)
				m := readMessage(t, stream, got.merged)
				turn.checkTurn(t, got)
				var text, thought, wantThought string
				var calls []string
				for _, b := range m.Content {
					text += b.Text
					thought += b.Thinking
					if b.Type == "tool_use" {
						calls = append(calls, b.ID)
						if b.Name != "look" || string(b.Input) != look("").Args {
							t.Errorf("call %s", b.RawJSON())
						}
					}
				}
				for _, s := range turn.steps {
					wantThought += s.Thinking
				}
				if text != turn.text || thought != wantThought || m.StopReason != reasons[turn.finishReason] {
					t.Errorf("%q %q, %s", thought, text, m.StopReason)
				}
				if d := cmp.Diff(turn.calls, calls); d != "" {
					t.Error(d)
				}
				want, u := got.bill.Total(), m.Usage
				if u.InputTokens != int64(want.Uncached) || u.OutputTokens != int64(want.Output) || u.CacheReadInputTokens != int64(want.CacheRead) || u.CacheCreationInputTokens != int64(want.CacheWrite) {
					t.Errorf("usage %+v, bill %+v", u, want)
				}
				for i, r := range got.rounds {
					s := turn.steps[i]
					shown := len(r.Others)
					if s.Thinking != "" {
						shown++
					}
					if s.Text != "" {
						shown++
					}
					if r.Shown != shown {
						t.Errorf("round %d: %d blocks shown, not %d: %s", i, r.Shown, shown, r.Said)
					}
				}
			})
		}
	})
}
