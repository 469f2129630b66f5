package llmtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// blockFields are the members that each kind of block may have.
var blockFields = map[string][]string{
	"text":              words("type text cache_control citations"),
	"image":             words("type source cache_control"),
	"document":          words("type source cache_control citations context title"),
	"search_result":     words("type source title content citations cache_control"),
	"tool_use":          words("type id name input cache_control caller"),
	"tool_result":       words("type tool_use_id content is_error cache_control"),
	"thinking":          words("type thinking signature"),
	"redacted_thinking": words("type data"),
}

var blockKinds = words("document image redacted_thinking search_result text thinking tool_result tool_use")

// signature is what the provider signs thinking with. It depends on nothing but the thinking, so
// that one who replays a conversation can write it too.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte("llmtest signs " + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// turn is what pairing calls and results needs to know of a message.
type turn struct {
	index   int
	role    string
	first   string // kind of the first block
	calls   []string
	results []string // those that stand before anything else
}

func (m *messageReader) readTurns(f fields) *refusal {
	list, ok := listOf(f["messages"])
	if !ok {
		return invalid("", "", "messages: Input should be a valid list")
	}
	if len(list) == 0 {
		return invalid("", "", "messages: at least one message is required")
	}
	m.ids = map[string]bool{}
	start := len(m.prompt)
	var turns []turn
	for i, raw := range list {
		msg, ok := fieldsOf(raw)
		if !ok {
			return invalid("", "", "messages.%d: Input should be a valid dictionary", i)
		}
		t, bad := m.readTurn(i, i == len(list)-1, msg)
		if bad != nil {
			return bad
		}
		turns = append(turns, t)
	}
	if start < len(m.prompt) {
		// A change of these makes another prefix of the messages, not of tools and system.
		m.prompt[start].salt = compact(f["tool_choice"]) + compact(f["thinking"])
	}
	if bad := paired(turns); bad != nil {
		return bad
	}
	return m.thoughtful(turns)
}

func (m *messageReader) readTurn(i int, last bool, msg fields) (turn, *refusal) {
	t := turn{index: i, role: msg.text("role")}
	if key, odd := msg.unknown("role", "content"); odd && !m.lenient {
		return t, extra(fmt.Sprintf("messages.%d.%s", i, key))
	}
	if bad := rightRole(i, t.role, msg); bad != nil {
		return t, bad
	}
	blocks, bad := contentOf(i, msg)
	if bad != nil {
		return t, bad
	}
	if len(blocks) == 0 && (t.role != "assistant" || !last) {
		return t, invalid("", "", "messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
	}
	for j, b := range blocks {
		if bad := m.readBlock(&t, j, b); bad != nil {
			return t, bad
		}
	}
	if len(t.calls) > 0 {
		m.turns++
	}
	if n := len(blocks); t.role == "assistant" && n > 0 && blocks[n-1].text("type") == "thinking" {
		return t, invalid("", "", "messages.%d: The final block in an assistant message cannot be `thinking`.", i)
	}
	return t, nil
}

func rightRole(i int, role string, msg fields) *refusal {
	switch {
	case !msg.given("role"):
		return invalid("", "", "messages.%d.role: Field required", i)
	case role == "system":
		return invalid("", "", "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.")
	case role != "user" && role != "assistant":
		return invalid("", "", "messages: Unexpected role %q. Allowed roles are \"user\" or \"assistant\".", role)
	case i == 0 && role != "user":
		return invalid("", "", "messages: first message must use the \"user\" role")
	}
	return nil
}

// contentOf is the message's content as blocks; a string is one block of text.
func contentOf(i int, msg fields) ([]fields, *refusal) {
	if !msg.given("content") {
		return nil, invalid("", "", "messages.%d.content: Field required", i)
	}
	if s, ok := textOf(msg["content"]); ok {
		if s == "" {
			return nil, nil
		}
		return []fields{{"type": json.RawMessage(`"text"`), "text": msg["content"]}}, nil
	}
	list, ok := listOf(msg["content"])
	if !ok {
		return nil, invalid("", "", "messages.%d.content: Input should be a valid list", i)
	}
	var blocks []fields
	for j, raw := range list {
		b, ok := fieldsOf(raw)
		if !ok {
			return nil, invalid("", "", "messages.%d.content.%d: Input should be a valid dictionary or object to extract fields from", i, j)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func (m *messageReader) readBlock(t *turn, j int, b fields) *refusal {
	kind := b.text("type")
	path := fmt.Sprintf("messages.%d.content.%d", t.index, j)
	known, ok := blockFields[kind]
	if !ok {
		return invalid("", "", "%s: Input tag '%s' found using 'type' does not match any of the expected tags: '%s'", path, kind, strings.Join(blockKinds, "', '"))
	}
	if key, odd := b.unknown(known...); odd && !m.lenient {
		return extra(path + "." + kind + "." + key)
	}
	if j == 0 {
		t.first = kind
	}
	text, bad := m.textOfBlock(t, j, path, kind, b)
	if bad != nil {
		return bad
	}
	return m.block(path, b, "<"+t.role+">"+text)
}

// textOfBlock checks a block of a message and is what the model reads of it.
func (m *messageReader) textOfBlock(t *turn, j int, path, kind string, b fields) (string, *refusal) {
	switch kind {
	case "text":
		text := b.text("text")
		if text == "" {
			return "", invalid("", "", "messages: text content blocks must be non-empty")
		}
		if strings.TrimSpace(text) == "" {
			return "", invalid("", "", "messages: text content blocks must contain non-whitespace text")
		}
		return text, nil
	case "tool_use":
		return m.toolUse(t, path, b)
	case "tool_result":
		return m.toolResult(t, j, path, b)
	case "thinking":
		if b.text("signature") != signature(b.text("thinking")) {
			return "", invalid("", "", "%s: Invalid `signature` in `thinking` block", path)
		}
		return b.text("thinking"), nil
	case "redacted_thinking":
		return b.text("data"), nil
	}
	return picture(b["source"]), nil
}

func (m *messageReader) toolUse(t *turn, path string, b fields) (string, *refusal) {
	id := b.text("id")
	switch {
	case t.role != "assistant":
		return "", invalid("", "", "messages.%d: `tool_use` blocks can only be in `assistant` messages", t.index)
	case !plainName(id):
		return "", invalid("", "", "%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", path)
	case b.text("name") == "":
		return "", invalid("", "", "%s.tool_use.name: Field required", path)
	case kindOf(b["input"]) != "object":
		return "", invalid("", "", "%s.tool_use.input: Input should be a valid dictionary", path)
	case m.ids[id]:
		return "", invalid("", "", "%s: `tool_use` ids must be unique", path)
	}
	m.ids[id] = true
	t.calls = append(t.calls, id)
	return "<call " + id + " " + b.text("name") + ">" + compact(b["input"]), nil
}

func (m *messageReader) toolResult(t *turn, j int, path string, b fields) (string, *refusal) {
	if t.role != "user" {
		return "", invalid("", "", "messages.%d: `tool_result` blocks can only be in `user` messages", t.index)
	}
	id := b.text("tool_use_id")
	if id == "" {
		return "", invalid("", "", "%s.tool_result.tool_use_id: Field required", path)
	}
	text, bad := resultText(path, b)
	if bad != nil {
		return "", bad
	}
	m.results = append(m.results, Result{id, text})
	// Results that come after something else do not count as results: the API wants them first.
	if j == len(t.results) {
		t.results = append(t.results, id)
	}
	flag := ""
	if b.is("is_error") {
		flag = " error"
	}
	return "<result " + id + flag + ">" + text, nil
}

// resultText is what a tool said. It may be nothing.
func resultText(path string, b fields) (string, *refusal) {
	if s, ok := textOf(b["content"]); ok || !b.given("content") {
		return s, nil
	}
	parts, ok := listOf(b["content"])
	if !ok {
		return "", invalid("", "", "%s.tool_result.content: Input should be a valid list", path)
	}
	var out strings.Builder
	for k, raw := range parts {
		part, _ := fieldsOf(raw)
		switch kind := part.text("type"); kind {
		case "text":
			if part.text("text") == "" {
				return "", invalid("", "", "messages: text content blocks must be non-empty")
			}
			out.WriteString(part.text("text"))
		case "image", "document", "search_result", "tool_reference":
			out.WriteString(picture(raw))
		default:
			return "", invalid("", "", "%s.tool_result.content.%d: Input tag '%s' found using 'type' does not match any of the expected tags: 'document', 'image', 'search_result', 'text', 'tool_reference'", path, k, kind)
		}
	}
	return out.String(), nil
}

// paired says that every call is answered in the next message, and nothing else is. Messages of the
// same role in a row are one.
func paired(turns []turn) *refusal {
	var asked turn // whose calls wait
	var answered []string
	flush := func() *refusal {
		lost := slices.DeleteFunc(slices.Clone(asked.calls), func(id string) bool { return slices.Contains(answered, id) })
		if len(lost) == 0 {
			return nil
		}
		return invalid("", "", "messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", asked.index, strings.Join(lost, ", "))
	}
	for i, t := range turns {
		if t.role == "assistant" {
			if i > 0 && turns[i-1].role == "assistant" {
				asked.calls = append(asked.calls, t.calls...)
				continue
			}
			if bad := flush(); bad != nil {
				return bad
			}
			asked, answered = t, nil
			continue
		}
		for j, id := range t.results {
			if !slices.Contains(asked.calls, id) {
				return invalid("", "", "messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", t.index, j, id)
			}
			if slices.Contains(answered, id) {
				return invalid("", "", "messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", t.index, j, id)
			}
			answered = append(answered, id)
		}
	}
	return flush()
}

// thoughtful says that a model that thinks finds its thinking before the calls that it just made.
func (m *messageReader) thoughtful(turns []turn) *refusal {
	if !m.thinking {
		return nil
	}
	for _, t := range slices.Backward(turns) {
		if t.role != "assistant" {
			continue
		}
		if len(t.calls) > 0 && t.first != "thinking" && t.first != "redacted_thinking" {
			return invalid("", "", "messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking", t.index, t.first) //nolint:misspell // their spelling
		}
		return nil
	}
	return nil
}
