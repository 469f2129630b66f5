package fakeprovider

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func anthropicClient(p *Provider) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(p.URL), option.WithAPIKey("sk-x"), option.WithMaxRetries(0))
}

func messageParams(messages ...anthropic.MessageParam) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude-test", MaxTokens: 4096, Messages: messages,
		Thinking: anthropic.ThinkingConfigParamOfEnabled(2048),
		System: []anthropic.TextBlockParam{{
			Text: strings.Repeat("Be brief. ", 600), CacheControl: anthropic.NewCacheControlEphemeralParam(),
		}},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{Properties: weather}}}},
	}
}

func converse(t *testing.T, c anthropic.Client, stream bool, messages ...anthropic.MessageParam) anthropic.Message {
	t.Helper()
	params := messageParams(messages...)
	if !stream {
		got, err := c.Messages.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		return *got
	}
	s := c.Messages.NewStreaming(t.Context(), params)
	defer s.Close()
	var acc anthropic.Message
	for s.Next() {
		if err := acc.Accumulate(s.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return acc
}

func TestAnthropicMessages(t *testing.T) {
	for _, stream := range []bool{false, true} {
		p := New(t, Options{})
		c := anthropicClient(p)
		thinking := twoCalls
		thinking.Thinking = "Two cities, so two calls."
		p.Script(thinking, ReplyText("Sunny."))
		user := anthropic.NewUserMessage(anthropic.NewTextBlock("What is the weather?"))
		first := converse(t, c, stream, user)
		if len(first.Content) != 4 || first.StopReason != "tool_use" {
			t.Fatalf("stream %v: %s", stream, first.RawJSON())
		}
		if th := first.Content[0].AsThinking(); th.Thinking != thinking.Thinking || th.Signature == "" {
			t.Errorf("stream %v: thinking %s", stream, th.RawJSON())
		}
		if text := first.Content[1].AsText().Text; text != twoCalls.Text {
			t.Errorf("stream %v: text %q", stream, text)
		}
		for i, b := range first.Content[2:] {
			use := b.AsToolUse()
			if got := (Call{use.ID, use.Name, string(use.Input)}); got != twoCalls.Calls[i] {
				t.Errorf("stream %v: call %v", stream, got)
			}
		}
		second := converse(t, c, stream, user, first.ToParam(), anthropic.NewUserMessage(
			anthropic.NewToolResultBlock("call_a", "19 °C", false), anthropic.NewToolResultBlock("call_b", "22 °C", true)))
		if second.Content[0].AsText().Text != "Sunny." || second.StopReason != "end_turn" {
			t.Errorf("stream %v: %s", stream, second.RawJSON())
		}
		for i, u := range []anthropic.Usage{first.Usage, second.Usage} {
			e := p.Bill()[i]
			if u.InputTokens != int64(e.Uncached) || u.CacheReadInputTokens != int64(e.CacheRead) || u.CacheCreationInputTokens != int64(e.CacheWrite) || u.OutputTokens != int64(e.Output) || u.CacheCreation.Ephemeral5mInputTokens != int64(e.CacheWrite) {
				t.Errorf("stream %v: usage %s, bill %+v", stream, u.RawJSON(), e)
			}
		}
		if b := p.Bill(); b[0].CacheWrite < 1500 || b[1].CacheRead != b[0].CacheWrite || b[1].CacheWrite != 0 {
			t.Errorf("wrong cache use: %+v", b)
		}
	}
}

func TestAnthropicErrors(t *testing.T) {
	p := New(t, Options{})
	c := anthropicClient(p)
	user := anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))
	kinds := map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
	for status, kind := range kinds {
		p.Script(FailWith(status))
		_, err := c.Messages.New(t.Context(), messageParams(user))
		var e *anthropic.Error
		if !errors.As(err, &e) || e.StatusCode != status || string(e.Type()) != kind || e.RequestID == "" {
			t.Errorf("%d: %v", status, err)
			continue
		}
		if retry := e.Response.Header.Get("Retry-After"); (status == http.StatusTooManyRequests) != (retry == "1") {
			t.Errorf("%d: Retry-After %q", status, retry)
		}
	}
	p.Script(Step{Text: "some text that goes on and on", AfterEvents: 4, Fail: &Failure{Status: 529}})
	s := c.Messages.NewStreaming(t.Context(), messageParams(user))
	defer s.Close()
	for s.Next() {
	}
	if s.Err() == nil || !strings.Contains(s.Err().Error(), "overloaded_error") {
		t.Errorf("in the stream: %v", s.Err())
	}
}

func TestAnthropicModelsAndCounting(t *testing.T) {
	p := New(t, Options{Models: []string{"m-1", "m-2"}})
	c := anthropicClient(p)
	page, err := c.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil || len(page.Data) != 2 || page.Data[0].ID != "m-1" || page.Data[0].CreatedAt.IsZero() {
		t.Errorf("%v %v", page, err)
	}
	n, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "m-1", Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(strings.Repeat("x", 394)))},
	})
	if err != nil || n.InputTokens != 100 {
		t.Errorf("%v %v", n, err)
	}
}
