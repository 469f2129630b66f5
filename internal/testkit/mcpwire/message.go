// Package mcpwire encodes and decodes MCP messages for test servers and clients, independent of the product's
// code.
package mcpwire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Revision is a protocol revision.
type Revision string

// The revisions. NoRevision is plain JSON-RPC without MCP.
const (
	Legacy     Revision = "2025-11-25"
	Modern     Revision = "2026-07-28"
	NoRevision Revision = ""
)

// Other is the other MCP revision.
func (e Revision) Other() Revision {
	if e == Legacy {
		return Modern
	}
	return Legacy
}

// Keys of a modern request's metadata.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Message is a JSON-RPC message with undecoded content.
type Message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// IsRequest reports whether the message is a request.
func (f Message) IsRequest() bool { return f.Method != "" && f.ID != nil }

// IsResponse reports whether the message is a response.
func (f Message) IsResponse() bool { return f.Method == "" && (f.Result != nil || f.Error != nil) }

// ParseMessage decodes exactly one message.
func ParseMessage(data []byte) (Message, error) {
	var f Message
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&f); err != nil {
		return f, fmt.Errorf("not a JSON-RPC message: %w in %.80q", err, data)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("more than one message in %.80q", data)
	}
	if f.JSONRPC != "2.0" || f.Method == "" && !f.IsResponse() {
		return f, fmt.Errorf("not a JSON-RPC message: %.80q", data)
	}
	return f, nil
}

// Params is the union of the params that test servers and clients read.
type Params struct {
	Name            string          `json:"name"`
	URI             string          `json:"uri"`
	Cursor          *string         `json:"cursor"`
	Arguments       Arguments       `json:"arguments"`
	RequestID       json.RawMessage `json:"requestId"`
	ProgressToken   json.RawMessage `json:"progressToken"`
	ProtocolVersion string          `json:"protocolVersion"`
	Message         string          `json:"message"`
	Level           string          `json:"level"`
	RequestState    string          `json:"requestState"`
	InputResponses  map[string]struct {
		Content struct {
			Answer string `json:"answer"`
		} `json:"content"`
	} `json:"inputResponses"`
	Notifications struct {
		Tools     bool     `json:"toolsListChanged"`
		Resources []string `json:"resourceSubscriptions"`
	} `json:"notifications"`
	Meta struct {
		Version       string          `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities  json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		Subscription  json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		ProgressToken json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
}

// Arguments are the arguments of all tools of the test server.
type Arguments struct {
	Nonce   string `json:"nonce"`
	Tenant  string `json:"tenant"`
	DelayMS int    `json:"delay_ms"`
	N       int    `json:"n"`
	MB      int    `json:"mb"`
	How     string `json:"how"`
	URI     string `json:"uri"`
	Late    bool   `json:"late"`
	Pad     string `json:"pad"`
}

// ParseParams decodes the params; missing ones are zero.
func (f Message) ParseParams() Params {
	var p Params
	_ = json.Unmarshal(f.Params, &p) // invalid params are empty params
	return p
}

// Quote encodes text as a JSON string.
func Quote(text string) string {
	b, _ := json.Marshal(text) // a string can always be encoded
	return string(b)
}

// EncodeJSON encodes a value that can always be encoded.
func EncodeJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return `"` + err.Error() + `"`
	}
	return string(b)
}

// NewRequest encodes a request. The id is JSON.
func NewRequest(id, method, params string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, Quote(method), params)
}

// NewNotification encodes a notification.
func NewNotification(method, params string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s,"params":%s}`, Quote(method), params)
}

// NewResponse encodes a response with a result.
func NewResponse(id json.RawMessage, result string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// NewError encodes a response with an error.
func NewError(id json.RawMessage, code int, text string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, Quote(text))
}

// WithMember inserts a member at the front of an object.
func WithMember(object, member string) string {
	rest := strings.TrimSpace(strings.TrimSpace(object)[1:])
	if rest == "}" {
		return "{" + member + "}"
	}
	return "{" + member + "," + rest
}

// Event is a server-sent event.
type Event struct{ Name, Data string }

// EventReader reads server-sent events.
type EventReader struct{ lines *bufio.Reader }

// NewEventReader returns a reader of the stream.
func NewEventReader(r io.Reader) *EventReader { return &EventReader{bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next event with data.
func (s *EventReader) Next() (Event, error) {
	var e Event
	var data []string
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && len(data) > 0 && strings.Join(data, "") != "":
			e.Data = strings.Join(data, "\n")
			return e, nil
		case line == "": // the end of a comment or an empty event
			e, data = Event{}, nil
		case field == "event":
			e.Name = value
		case field == "data":
			data = append(data, value)
		}
	}
}

// ElicitedAnswer is the answer in the result of an elicitation; "" if there is none.
func ElicitedAnswer(result string) string {
	var r struct {
		Content struct {
			Answer string `json:"answer"`
		} `json:"content"`
	}
	_ = json.Unmarshal([]byte(result), &r)
	return r.Content.Answer
}
