package llmtest

import (
	"encoding/json"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// response is an answer in the shape of responses.
type response struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	CreatedAt         int64           `json:"created_at"`
	Status            string          `json:"status"`
	Error             json.RawMessage `json:"error"`
	IncompleteDetails *incomplete     `json:"incomplete_details"`
	Instructions      json.RawMessage `json:"instructions"`
	Metadata          struct{}        `json:"metadata"`
	Model             string          `json:"model"`
	Output            []outputItem    `json:"output"`
	ParallelToolCalls bool            `json:"parallel_tool_calls"`
	Store             bool            `json:"store"`
	Temperature       float64         `json:"temperature"`
	ToolChoice        string          `json:"tool_choice"`
	Tools             json.RawMessage `json:"tools"`
	TopP              float64         `json:"top_p"`
	Usage             *responseUsage  `json:"usage"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

// outputItem is an item of any kind: what is nil does not belong to its kind.
type outputItem struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Status    string        `json:"status,omitempty"`
	Role      string        `json:"role,omitempty"`
	Content   *[]outputPart `json:"content,omitempty"`
	Summary   *[]outputPart `json:"summary,omitempty"`
	Arguments *string       `json:"arguments,omitempty"`
	CallID    string        `json:"call_id,omitempty"`
	Name      string        `json:"name,omitempty"`
}

type outputPart struct {
	Type        string    `json:"type"`
	Annotations *[]string `json:"annotations,omitempty"`
	Logprobs    *[]string `json:"logprobs,omitempty"`
	Text        string    `json:"text"`
}

type responseUsage struct {
	InputTokens        int `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens     int `json:"cached_tokens"`
		CacheWriteTokens int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens        int `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int `json:"total_tokens"`
}

// responseEvent is an event of a stream of any kind.
type responseEvent struct {
	Type           string      `json:"type"`
	SequenceNumber int         `json:"sequence_number"`
	Response       *response   `json:"response,omitempty"`
	ItemID         string      `json:"item_id,omitempty"`
	OutputIndex    *int        `json:"output_index,omitempty"`
	ContentIndex   *int        `json:"content_index,omitempty"`
	SummaryIndex   *int        `json:"summary_index,omitempty"`
	Item           *outputItem `json:"item,omitempty"`
	Part           *outputPart `json:"part,omitempty"`
	Delta          string      `json:"delta,omitempty"`
	Text           *string     `json:"text,omitempty"`
	Arguments      *string     `json:"arguments,omitempty"`
	Logprobs       *[]string   `json:"logprobs,omitempty"`
}

func (a answer) responseUsage() *responseUsage {
	u := &responseUsage{InputTokens: a.prompt.tokens(), OutputTokens: a.output()}
	u.InputTokensDetails.CachedTokens = a.cached
	if a.writes {
		u.InputTokensDetails.CacheWriteTokens = a.hit.created
	}
	u.OutputTokensDetails.ReasoningTokens = Tokens(a.Think)
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

func (a answer) response(status string) response {
	return response{
		ID: a.id, Object: "response", CreatedAt: a.created.Unix(), Status: status, Model: a.model,
		Output: []outputItem{}, ParallelToolCalls: true, Store: a.store, Temperature: 1,
		ToolChoice: "auto", Tools: a.echoTools, Instructions: a.echoInstructions, TopP: 1,
	}
}

// finished is the response when all its output is there.
func (a answer) finishedResponse(output []outputItem) response {
	r := a.response("completed")
	if a.Short {
		r.Status, r.IncompleteDetails = "incomplete", &incomplete{"max_output_tokens"}
	}
	r.Output, r.Usage = output, a.responseUsage()
	return r
}

func textPart(text string) outputPart {
	return outputPart{Type: "output_text", Annotations: &[]string{}, Logprobs: &[]string{}, Text: text}
}

func summaryPart(text string) outputPart { return outputPart{Type: "summary_text", Text: text} }

// responseItems are the finished items of the output.
func (a answer) responseItems() []outputItem {
	var out []outputItem
	if a.Think != "" {
		out = append(out, outputItem{ID: a.number("rs_"), Type: "reasoning", Summary: &[]outputPart{summaryPart(a.Think)}})
	}
	if a.Text != "" {
		out = append(out, outputItem{ID: a.number("msg_"), Type: "message", Status: "completed", Role: "assistant", Content: &[]outputPart{textPart(a.Text)}})
	}
	for _, c := range a.Calls {
		out = append(out, outputItem{ID: a.number("fc_"), Type: "function_call", Status: "completed", Arguments: &c.Args, CallID: c.ID, Name: c.Name})
	}
	return out
}

func (a answer) responsesBody() []byte { return encode(a.finishedResponse(a.responseItems())) }

// responseStream collects events and numbers them.
type responseStream struct {
	events []sse.Event
	index  int
}

func (s *responseStream) send(e responseEvent) {
	e.SequenceNumber = len(s.events)
	s.events = append(s.events, sse.Event{Name: e.Type, Data: encode(e)})
}

func (a answer) responsesEvents() []sse.Event {
	var s responseStream
	begun := a.response("in_progress")
	s.send(responseEvent{Type: "response.created", Response: &begun})
	s.send(responseEvent{Type: "response.in_progress", Response: &begun})
	items := a.responseItems()
	for _, it := range items {
		s.item(a, it)
	}
	last := a.finishedResponse(items)
	s.send(responseEvent{Type: "response." + last.Status, Response: &last})
	return s.events
}

// item sends one item of the output: how it begins, its deltas, its end.
func (s *responseStream) item(a answer, it outputItem) {
	i := s.index
	s.index++
	start := it
	if it.Status != "" {
		start.Status = "in_progress"
	}
	none := ""
	switch it.Type {
	case "reasoning":
		start.Summary = &[]outputPart{}
	case "message":
		start.Content = &[]outputPart{}
	case "function_call":
		start.Arguments = &none
	}
	s.send(responseEvent{Type: "response.output_item.added", OutputIndex: &i, Item: &start})
	at := responseEvent{ItemID: it.ID, OutputIndex: &i}
	switch it.Type {
	case "reasoning":
		s.summary(a, at)
	case "message":
		s.text(a, at)
	case "function_call":
		s.arguments(a, at, it)
	}
	s.send(responseEvent{Type: "response.output_item.done", OutputIndex: &i, Item: &it})
}

func (s *responseStream) summary(a answer, at responseEvent) {
	zero := 0
	at.SummaryIndex = &zero
	empty, whole := summaryPart(""), summaryPart(a.Think)
	s.send(with(at, "response.reasoning_summary_part.added", func(e *responseEvent) { e.Part = &empty }))
	for _, piece := range a.pieces(a.Think) {
		s.send(with(at, "response.reasoning_summary_text.delta", func(e *responseEvent) { e.Delta = piece }))
	}
	s.send(with(at, "response.reasoning_summary_text.done", func(e *responseEvent) { e.Text = &a.Think }))
	s.send(with(at, "response.reasoning_summary_part.done", func(e *responseEvent) { e.Part = &whole }))
}

func (s *responseStream) text(a answer, at responseEvent) {
	zero := 0
	at.ContentIndex = &zero
	empty, whole, none := textPart(""), textPart(a.Text), []string{}
	s.send(with(at, "response.content_part.added", func(e *responseEvent) { e.Part = &empty }))
	for _, piece := range a.pieces(a.Text) {
		s.send(with(at, "response.output_text.delta", func(e *responseEvent) { e.Delta, e.Logprobs = piece, &none }))
	}
	s.send(with(at, "response.output_text.done", func(e *responseEvent) { e.Text, e.Logprobs = &a.Text, &none }))
	s.send(with(at, "response.content_part.done", func(e *responseEvent) { e.Part = &whole }))
}

func (s *responseStream) arguments(a answer, at responseEvent, it outputItem) {
	for _, piece := range a.pieces(*it.Arguments) {
		s.send(with(at, "response.function_call_arguments.delta", func(e *responseEvent) { e.Delta = piece }))
	}
	s.send(with(at, "response.function_call_arguments.done", func(e *responseEvent) { e.Arguments = it.Arguments }))
}

// with is the event at the same place, of another kind.
func with(at responseEvent, kind string, set func(*responseEvent)) responseEvent {
	at.Type = kind
	set(&at)
	return at
}
