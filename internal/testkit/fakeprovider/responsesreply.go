package fakeprovider

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// response is a responses reply.
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

// outputItem is an item of any type; members of other types are nil.
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
	Namespace string        `json:"namespace,omitempty"`
	Execution string        `json:"execution,omitempty"`
	// Search is the arguments of a tool_search_call, which are an object.
	Search json.RawMessage `json:"-"`
}

// MarshalJSON encodes an item: a search has its arguments as an object.
func (it outputItem) MarshalJSON() ([]byte, error) {
	type plain outputItem
	if it.Search == nil {
		return encodeJSON(plain(it)), nil
	}
	return encodeJSON(struct {
		plain
		Arguments json.RawMessage `json:"arguments"`
	}{plain(it), it.Search}), nil
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

// responseEvent is a stream event of any type.
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

func (a reply) responseUsage() *responseUsage {
	u := &responseUsage{InputTokens: a.prompt.tokens(), OutputTokens: a.outputTokens()}
	u.InputTokensDetails.CachedTokens = a.cacheRead
	if a.reportsWrites {
		u.InputTokensDetails.CacheWriteTokens = a.cacheWritten
	}
	u.OutputTokensDetails.ReasoningTokens = Tokens(a.Thinking)
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

func (a reply) response(status string) response {
	return response{
		ID: a.id, Object: "response", CreatedAt: a.created.Unix(), Status: status, Model: a.model,
		Output: []outputItem{}, ParallelToolCalls: true, Store: a.store, Temperature: 1,
		ToolChoice: "auto", Tools: a.echoTools, Instructions: a.echoInstructions, TopP: 1,
	}
}

// finishedResponse is the response with all its output.
func (a reply) finishedResponse(output []outputItem) response {
	r := a.response("completed")
	if a.Truncated {
		r.Status, r.IncompleteDetails = "incomplete", &incomplete{"max_output_tokens"}
	}
	r.Output, r.Usage = output, a.responseUsage()
	return r
}

func textPart(text string) outputPart {
	return outputPart{Type: "output_text", Annotations: &[]string{}, Logprobs: &[]string{}, Text: text}
}

func summaryPart(text string) outputPart { return outputPart{Type: "summary_text", Text: text} }

// responseItems returns the finished output items.
func (a reply) responseItems() []outputItem {
	var out []outputItem
	if a.Thinking != "" {
		out = append(out, outputItem{ID: a.newID("rs_"), Type: "reasoning", Summary: &[]outputPart{summaryPart(a.Thinking)}})
	}
	if a.Text != "" {
		out = append(out, outputItem{ID: a.newID("msg_"), Type: "message", Status: "completed", Role: "assistant", Content: &[]outputPart{textPart(a.Text)}})
	}
	for _, c := range a.Calls {
		if c.Name == "tool_search" && slices.Contains(a.tools, c.Name) {
			out = append(out, outputItem{ID: a.newID("tsc_"), Type: "tool_search_call", Status: "completed", Execution: "client", Search: json.RawMessage(c.Args), CallID: c.ID})
			continue
		}
		it := outputItem{ID: a.newID("fc_"), Type: "function_call", Status: "completed", Arguments: &c.Args, CallID: c.ID, Name: c.Name}
		if space, name, ok := strings.Cut(c.Name, "."); ok {
			it.Namespace, it.Name = space, name
		}
		out = append(out, it)
	}
	return out
}

func (a reply) responsesBody() []byte { return encodeJSON(a.finishedResponse(a.responseItems())) }

// responseStream collects and numbers events.
type responseStream struct {
	events []sse.Event
	index  int
}

func (s *responseStream) addEvent(e responseEvent) {
	e.SequenceNumber = len(s.events)
	s.events = append(s.events, sse.Event{Name: e.Type, Data: encodeJSON(e)})
}

func (a reply) responsesEvents() []sse.Event {
	var s responseStream
	begun := a.response("in_progress")
	s.addEvent(responseEvent{Type: "response.created", Response: &begun})
	s.addEvent(responseEvent{Type: "response.in_progress", Response: &begun})
	items := a.responseItems()
	for _, it := range items {
		s.addItem(a, it)
	}
	last := a.finishedResponse(items)
	s.addEvent(responseEvent{Type: "response." + last.Status, Response: &last})
	return s.events
}

// addItem adds the events of one output item: added, deltas, done.
func (s *responseStream) addItem(a reply, it outputItem) {
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
	s.addEvent(responseEvent{Type: "response.output_item.added", OutputIndex: &i, Item: &start})
	at := responseEvent{ItemID: it.ID, OutputIndex: &i}
	switch it.Type {
	case "reasoning":
		s.summary(a, at)
	case "message":
		s.text(a, at)
	case "function_call":
		s.arguments(a, at, it)
	}
	s.addEvent(responseEvent{Type: "response.output_item.done", OutputIndex: &i, Item: &it})
}

func (s *responseStream) summary(a reply, at responseEvent) {
	zero := 0
	at.SummaryIndex = &zero
	empty, whole := summaryPart(""), summaryPart(a.Thinking)
	s.addEvent(eventAt(at, "response.reasoning_summary_part.added", func(e *responseEvent) { e.Part = &empty }))
	for _, chunk := range a.chunks(a.Thinking) {
		s.addEvent(eventAt(at, "response.reasoning_summary_text.delta", func(e *responseEvent) { e.Delta = chunk }))
	}
	s.addEvent(eventAt(at, "response.reasoning_summary_text.done", func(e *responseEvent) { e.Text = &a.Thinking }))
	s.addEvent(eventAt(at, "response.reasoning_summary_part.done", func(e *responseEvent) { e.Part = &whole }))
}

func (s *responseStream) text(a reply, at responseEvent) {
	zero := 0
	at.ContentIndex = &zero
	empty, whole, none := textPart(""), textPart(a.Text), []string{}
	s.addEvent(eventAt(at, "response.content_part.added", func(e *responseEvent) { e.Part = &empty }))
	for _, chunk := range a.chunks(a.Text) {
		s.addEvent(eventAt(at, "response.output_text.delta", func(e *responseEvent) { e.Delta, e.Logprobs = chunk, &none }))
	}
	s.addEvent(eventAt(at, "response.output_text.done", func(e *responseEvent) { e.Text, e.Logprobs = &a.Text, &none }))
	s.addEvent(eventAt(at, "response.content_part.done", func(e *responseEvent) { e.Part = &whole }))
}

func (s *responseStream) arguments(a reply, at responseEvent, it outputItem) {
	for _, chunk := range a.chunks(*it.Arguments) {
		s.addEvent(eventAt(at, "response.function_call_arguments.delta", func(e *responseEvent) { e.Delta = chunk }))
	}
	s.addEvent(eventAt(at, "response.function_call_arguments.done", func(e *responseEvent) { e.Arguments = it.Arguments }))
}

// eventAt returns the event with another type and content.
func eventAt(at responseEvent, kind string, set func(*responseEvent)) responseEvent {
	at.Type = kind
	set(&at)
	return at
}
