package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/genai"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// geminiClient is google.golang.org/genai.
type geminiClient struct{ *genai.Client }

func newGeminiClient(w *llmSetup) llmClient { return geminiClient{geminiAt(w.URL, w.Key, 0)} }

func geminiAt(url, key string, retries int) *genai.Client {
	attempts := int32(retries + 1)
	c, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: key, Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: url, RetryOptions: &genai.HTTPRetryOptions{Attempts: &attempts}},
	})
	if err != nil {
		panic(err) // only a missing key is refused
	}
	return c
}

func (c geminiClient) openConversation(w *llmSetup, model, key string, retries int) llmConversation {
	tool := &genai.Tool{}
	for _, t := range w.Tools {
		tool.FunctionDeclarations = append(tool.FunctionDeclarations, &genai.FunctionDeclaration{Name: t.Name, Description: t.Description, ParametersJsonSchema: parameters(t)})
	}
	return &geminiConversation{client: geminiAt(w.URL, key, retries), model: model, stream: w.Stream, config: &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText(w.System, genai.RoleUser), Tools: []*genai.Tool{tool},
		ThinkingConfig: &genai.ThinkingConfig{IncludeThoughts: true},
	}}
}

func (c geminiClient) models(ctx context.Context) ([]string, error) {
	var ids []string
	for m, err := range c.Models.All(ctx) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, strings.TrimPrefix(m.Name, "models/"))
	}
	return ids, nil
}

func (c geminiClient) model(ctx context.Context, id string) (string, error) {
	m, err := c.Models.Get(ctx, id, nil)
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(m.Name, "models/"), nil
}

func (c geminiClient) count(ctx context.Context, w *llmSetup, model string) (int, error) {
	n, err := c.Models.CountTokens(ctx, model, genai.Text(w.Conversation.Task), nil)
	if err != nil {
		return 0, err
	}
	return int(n.TotalTokens), nil
}

type geminiConversation struct {
	client   *genai.Client
	model    string
	stream   bool
	config   *genai.GenerateContentConfig
	contents []*genai.Content
}

func (g *geminiConversation) user(text string) {
	g.contents = append(g.contents, genai.NewContentFromText(text, genai.RoleUser))
}

func (g *geminiConversation) results(list []trajectories.ToolUse) {
	content := &genai.Content{Role: genai.RoleUser}
	for _, r := range list {
		key := "output"
		if r.IsError {
			key = "error"
		}
		content.Parts = append(content.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: r.ID, Name: r.Name, Response: map[string]any{key: r.Result}}})
	}
	g.contents = append(g.contents, content)
}

func (g *geminiConversation) sendRequest(ctx context.Context, onDelta func(string)) (llmReply, error) {
	var out llmReply
	said := &genai.Content{Role: genai.RoleModel}
	add := func(e *genai.GenerateContentResponse) error {
		if len(e.Candidates) == 0 || e.UsageMetadata == nil {
			return errors.New("an event without a candidate or its usage")
		}
		u := e.UsageMetadata
		out.used = modelUsage{Fresh: int(u.PromptTokenCount - u.CachedContentTokenCount), Cached: int(u.CachedContentTokenCount), Output: int(u.CandidatesTokenCount + u.ThoughtsTokenCount)}
		out.stop += string(e.Candidates[0].FinishReason)
		for _, p := range e.Candidates[0].Content.Parts {
			said.Parts = append(said.Parts, p)
			switch {
			case p.FunctionCall != nil:
				args := &bytes.Buffer{}
				enc := json.NewEncoder(args)
				enc.SetEscapeHTML(false)
				if err := enc.Encode(p.FunctionCall.Args); err != nil {
					return err
				}
				out.calls = append(out.calls, fakeprovider.Call{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Args: strings.TrimSpace(args.String())})
			case p.Thought:
				out.thought += p.Text
			default:
				out.text += p.Text
				if onDelta != nil {
					onDelta(p.Text)
				}
			}
		}
		return nil
	}
	if !g.stream {
		one, err := g.client.Models.GenerateContent(ctx, g.model, g.contents, g.config)
		if err == nil {
			err = add(one)
		}
		if err != nil {
			return llmReply{}, err
		}
	} else {
		for e, err := range g.client.Models.GenerateContentStream(ctx, g.model, g.contents, g.config) {
			if err == nil {
				err = add(e)
			}
			if err != nil {
				return llmReply{}, err
			}
		}
		if out.stop == "" {
			return llmReply{}, errors.New("the stream ended without its end")
		}
	}
	g.contents = append(g.contents, said)
	return out, nil
}
