package sdktest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func openaiClient(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
}

// readChat reads a reply with the official SDK.
func readChat(t *testing.T, stream bool, body []byte) openai.ChatCompletion {
	t.Helper()
	c := openaiClient(serveBody(t, stream, body))
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
			t.Fatalf("the accumulator rejects %s", s.Current().RawJSON())
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

// H+5: the client receives one completion.
func TestJoinChat(t *testing.T) {
	forBothStreamings(t, func(t *testing.T, stream bool) {
		for _, turn := range readbackTurns() {
			t.Run(turn.name, func(t *testing.T) {
				got := runTurn(t, openAIChat, stream, turn.maxRounds, turn.steps...)
				c := readChat(t, stream, got.merged)
				turn.checkTurn(t, got)
				if len(c.Choices) != 1 {
					t.Fatalf("%s", got.merged)
				}
				var calls []string
				for _, call := range c.Choices[0].Message.ToolCalls {
					calls = append(calls, call.ID)
					if call.Function.Name != "look" || call.Function.Arguments != look("").Args {
						t.Errorf("call %s", call.RawJSON())
					}
				}
				if c.Choices[0].Message.Content != turn.text || c.Choices[0].FinishReason != turn.finishReason {
					t.Errorf("%q, %s", c.Choices[0].Message.Content, c.Choices[0].FinishReason)
				}
				if d := cmp.Diff(turn.calls, calls); d != "" {
					t.Error(d)
				}
				want, u := got.bill.Total(), c.Usage
				if u.PromptTokens != int64(want.Input()) || u.CompletionTokens != int64(want.Output) || u.TotalTokens != int64(want.Input()+want.Output) || u.PromptTokensDetails.CachedTokens != int64(want.CacheRead) {
					t.Errorf("usage %+v, bill %+v", u, want)
				}
			})
		}
	})
}
