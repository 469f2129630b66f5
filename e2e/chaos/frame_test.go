//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// era is which of the two protocols is spoken.
type era string

const (
	legacy era = "2025-11-25"
	modern era = "2026-07-28"
	plain  era = "" // one JSON-RPC message, without any protocol around it
)

func (e era) other() era {
	if e == legacy {
		return modern
	}
	return legacy
}

// Keys of a modern request's metadata.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// frame is one JSON-RPC message; what it does not need to understand it keeps as it came.
type frame struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (f frame) isRequest() bool  { return f.Method != "" && f.ID != nil }
func (f frame) isResponse() bool { return f.Method == "" && (f.Result != nil || f.Error != nil) }

// parse reads exactly one message.
func parse(data []byte) (frame, error) {
	var f frame
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&f); err != nil {
		return f, fmt.Errorf("no JSON-RPC message: %w in %.80q", err, data)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("more than one message in %.80q", data)
	}
	if f.JSONRPC != "2.0" || f.Method == "" && !f.isResponse() {
		return f, fmt.Errorf("no JSON-RPC message: %.80q", data)
	}
	return f, nil
}

// params is what the fakes and clients read of any message's params.
type params struct {
	Name            string          `json:"name"`
	URI             string          `json:"uri"`
	Cursor          *string         `json:"cursor"`
	Arguments       arguments       `json:"arguments"`
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

// arguments of every fake tool.
type arguments struct {
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

// read gives a message's params; what is not there is zero.
func (f frame) read() params {
	var p params
	_ = json.Unmarshal(f.Params, &p) // a peer that sends nonsense gets the answer to nothing
	return p
}

// quote writes text as a JSON string.
func quote(text string) string {
	b, _ := json.Marshal(text) // a string is always JSON
	return string(b)
}

// toJSON writes a value of this package's own, which is always JSON.
func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return `"` + err.Error() + `"`
	}
	return string(b)
}

func request(id, method, params string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, quote(method), params)
}

func notification(method, params string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s,"params":%s}`, quote(method), params)
}

func response(id json.RawMessage, result string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func refusal(id json.RawMessage, code int, text string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, quote(text))
}

// into puts a member at the front of an object.
func into(object, member string) string {
	rest := strings.TrimSpace(strings.TrimSpace(object)[1:])
	if rest == "}" {
		return "{" + member + "}"
	}
	return "{" + member + "," + rest
}

// sseEvent is one server-sent event.
type sseEvent struct{ name, data string }

// sseReader reads events from a stream.
type sseReader struct{ lines *bufio.Reader }

func newSSEReader(r io.Reader) *sseReader { return &sseReader{bufio.NewReaderSize(r, 64<<10)} }

// next gives the next event that has data.
func (s *sseReader) next() (sseEvent, error) {
	var e sseEvent
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
			e.data = strings.Join(data, "\n")
			return e, nil
		case line == "": // a comment or an empty event has ended
			e, data = sseEvent{}, nil
		case field == "event":
			e.name = value
		case field == "data":
			data = append(data, value)
		}
	}
}

// jsonInto reads part of a message.
func jsonInto(data []byte, v any) error { return json.Unmarshal(data, v) }

// saidIn is the answer in an elicitation's result.
func saidIn(result string) string {
	var r struct {
		Content struct {
			Answer string `json:"answer"`
		} `json:"content"`
	}
	_ = json.Unmarshal([]byte(result), &r) // no answer is an answer too
	return r.Content.Answer
}
