package clients

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/ctxgate/ctxgate/history"
)

func openaiClient(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
}

// readChat is what the official client makes of a reply.
func readChat(t *testing.T, stream bool, body []byte) openai.ChatCompletion {
	t.Helper()
	c := openaiClient(serve(t, stream, body))
	params := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("?")}}
	if !stream {
		got, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		return *got
	}
	s := c.Chat.Completions.NewStreaming(t.Context(), params)
	defer s.Close()
	var acc openai.ChatCompletionAccumulator
	roles := 0
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatalf("the accumulator refuses %s", s.Current().RawJSON())
		}
		if ch := s.Current().Choices; len(ch) > 0 && ch[0].Delta.Role != "" {
			roles++
		}
	}
	if s.Err() != nil || roles != 1 {
		t.Fatalf("%v, %d roles\n%s", s.Err(), roles, body)
	}
	return acc.ChatCompletion
}

// H+5: the client has one completion, whoever reads it.
func TestJoinChat(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		for _, turn := range turns() {
			t.Run(turn.name, func(t *testing.T) {
				got := play(t, history.Chat, stream, turn.most, turn.steps...)
				c := readChat(t, stream, got.joined)
				turn.check(t, got)
				if len(c.Choices) != 1 {
					t.Fatalf("%s", got.joined)
				}
				var calls []string
				for _, call := range c.Choices[0].Message.ToolCalls {
					calls = append(calls, call.ID)
					if call.Function.Name != "look" || call.Function.Arguments != look("").Args {
						t.Errorf("call %s", call.RawJSON())
					}
				}
				if c.Choices[0].Message.Content != turn.text || c.Choices[0].FinishReason != turn.ends {
					t.Errorf("%q, %s", c.Choices[0].Message.Content, c.Choices[0].FinishReason)
				}
				if d := cmp.Diff(turn.calls, calls); d != "" {
					t.Error(d)
				}
				want, u := got.bill.Total(), c.Usage
				if u.PromptTokens != int64(want.Input()) || u.CompletionTokens != int64(want.Output) || u.TotalTokens != int64(want.Input()+want.Output) || u.PromptTokensDetails.CachedTokens != int64(want.Cached) {
					t.Errorf("usage %+v, bill %+v", u, want)
				}
			})
		}
	})
}
