package fakeprovider

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// blockFields are the known members of each block type.
var blockFields = map[string][]string{
	"text":              strings.Fields("type text cache_control citations"),
	"image":             strings.Fields("type source cache_control"),
	"document":          strings.Fields("type source cache_control citations context title"),
	"search_result":     strings.Fields("type source title content citations cache_control"),
	"tool_use":          strings.Fields("type id name input cache_control caller"),
	"tool_result":       strings.Fields("type tool_use_id content is_error cache_control"),
	"thinking":          strings.Fields("type thinking signature"),
	"redacted_thinking": strings.Fields("type data"),
}

var blockKinds = strings.Fields("document image redacted_thinking search_result text thinking tool_result tool_use")

// SignThinking returns the signature of a thinking block. It depends only on the thinking, so that a
// replayed conversation can contain it.
func SignThinking(thinking string) string {
	sum := sha256.Sum256([]byte("fakeprovider signs " + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// messageInfo is what checking calls against results needs of a message.
type messageInfo struct {
	index   int
	role    string
	first   string // type of the first block
	calls   []string
	results []string // those before any other block
}

func (m *messageReader) readMessageList(f fields) *apiError {
	list, ok := parseArray(f["messages"])
	if !ok {
		return invalid("", "", "messages: Input should be a valid list")
	}
	if len(list) == 0 {
		return invalid("", "", "messages: at least one message is required")
	}
	m.callIDs = map[string]bool{}
	start := len(m.prompt)
	var turns []messageInfo
	for i, raw := range list {
		msg, ok := parseObject(raw)
		if !ok {
			return invalid("", "", "messages.%d: Input should be a valid dictionary", i)
		}
		t, apiErr := m.readMessage(i, i == len(list)-1, msg)
		if apiErr != nil {
			return apiErr
		}
		turns = append(turns, t)
	}
	if start < len(m.prompt) {
		// Changing these invalidates cached prefixes of the messages, not of tools and system.
		m.prompt[start].salt = compact(f["tool_choice"]) + compact(f["thinking"])
	}
	if apiErr := checkPairs(turns); apiErr != nil {
		return apiErr
	}
	return m.checkThinking(turns)
}

func (m *messageReader) readMessage(i int, last bool, msg fields) (messageInfo, *apiError) {
	t := messageInfo{index: i, role: msg.text("role")}
	if key, odd := msg.firstUnknown("role", "content"); odd && !m.lenient {
		return t, extraField(fmt.Sprintf("messages.%d.%s", i, key))
	}
	if apiErr := m.checkRole(i, t.role, msg); apiErr != nil {
		return t, apiErr
	}
	blocks, apiErr := contentBlocks(i, msg)
	if apiErr != nil {
		return t, apiErr
	}
	if len(blocks) == 0 && (t.role != "assistant" || !last) {
		return t, invalid("", "", "messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
	}
	for j, b := range blocks {
		if apiErr := m.readBlock(&t, j, b); apiErr != nil {
			return t, apiErr
		}
	}
	if len(t.calls) > 0 {
		m.toolTurns++
	}
	if n := len(blocks); t.role == "assistant" && n > 0 && blocks[n-1].text("type") == "thinking" {
		return t, invalid("", "", "messages.%d: The final block in an assistant message cannot be `thinking`.", i)
	}
	return t, nil
}

func (m *messageReader) checkRole(i int, role string, msg fields) *apiError {
	switch {
	case !msg.has("role"):
		return invalid("", "", "messages.%d.role: Field required", i)
	case role == "system" && m.systemTurns:
		return nil
	case role == "system":
		return invalid("", "", "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.")
	case role != "user" && role != "assistant":
		return invalid("", "", "messages: Unexpected role %q. Allowed roles are \"user\" or \"assistant\".", role)
	case i == 0 && role != "user":
		return invalid("", "", "messages: first message must use the \"user\" role")
	}
	return nil
}

// contentBlocks returns the message's content as blocks; a string is one text block.
func contentBlocks(i int, msg fields) ([]fields, *apiError) {
	if !msg.has("content") {
		return nil, invalid("", "", "messages.%d.content: Field required", i)
	}
	if s, ok := parseString(msg["content"]); ok {
		if s == "" {
			return nil, nil
		}
		return []fields{{"type": json.RawMessage(`"text"`), "text": msg["content"]}}, nil
	}
	list, ok := parseArray(msg["content"])
	if !ok {
		return nil, invalid("", "", "messages.%d.content: Input should be a valid list", i)
	}
	var blocks []fields
	for j, raw := range list {
		b, ok := parseObject(raw)
		if !ok {
			return nil, invalid("", "", "messages.%d.content.%d: Input should be a valid dictionary or object to extract fields from", i, j)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func (m *messageReader) readBlock(t *messageInfo, j int, b fields) *apiError {
	kind := b.text("type")
	path := fmt.Sprintf("messages.%d.content.%d", t.index, j)
	known, ok := blockFields[kind]
	if !ok {
		return invalid("", "", "%s: Input tag '%s' found using 'type' does not match any of the expected tags: '%s'", path, kind, strings.Join(blockKinds, "', '"))
	}
	if key, odd := b.firstUnknown(known...); odd && !m.lenient {
		return extraField(path + "." + kind + "." + key)
	}
	if j == 0 {
		t.first = kind
	}
	text, apiErr := m.textOfBlock(t, j, path, kind, b)
	if apiErr != nil {
		return apiErr
	}
	return m.addBlock(path, b, "<"+t.role+">"+text)
}

// textOfBlock validates a block and returns the text that the model reads.
func (m *messageReader) textOfBlock(t *messageInfo, j int, path, kind string, b fields) (string, *apiError) {
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
		if b.text("signature") != SignThinking(b.text("thinking")) {
			return "", invalid("", "", "%s: Invalid `signature` in `thinking` block", path)
		}
		return b.text("thinking"), nil
	case "redacted_thinking":
		return b.text("data"), nil
	}
	return imagePlaceholder(b["source"]), nil
}

func (m *messageReader) toolUse(t *messageInfo, path string, b fields) (string, *apiError) {
	id := b.text("id")
	switch {
	case t.role != "assistant":
		return "", invalid("", "", "messages.%d: `tool_use` blocks can only be in `assistant` messages", t.index)
	case !isIdentifier(id):
		return "", invalid("", "", "%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", path)
	case b.text("name") == "":
		return "", invalid("", "", "%s.tool_use.name: Field required", path)
	case jsonType(b["input"]) != "object":
		return "", invalid("", "", "%s.tool_use.input: Input should be a valid dictionary", path)
	case m.callIDs[id]:
		return "", invalid("", "", "%s: `tool_use` ids must be unique", path)
	}
	m.callIDs[id] = true
	t.calls = append(t.calls, id)
	return "<call " + id + " " + b.text("name") + ">" + compact(b["input"]), nil
}

func (m *messageReader) toolResult(t *messageInfo, j int, path string, b fields) (string, *apiError) {
	if t.role != "user" {
		return "", invalid("", "", "messages.%d: `tool_result` blocks can only be in `user` messages", t.index)
	}
	id := b.text("tool_use_id")
	if id == "" {
		return "", invalid("", "", "%s.tool_result.tool_use_id: Field required", path)
	}
	text, apiErr := resultText(path, b)
	if apiErr != nil {
		return "", apiErr
	}
	m.results = append(m.results, Result{id, text})
	// The API requires results before all other blocks; later ones do not count.
	if j == len(t.results) {
		t.results = append(t.results, id)
	}
	flag := ""
	if b.isTrue("is_error") {
		flag = " error"
	}
	return "<result " + id + flag + ">" + text, nil
}

// resultText returns the text of a tool result; it may be empty.
func resultText(path string, b fields) (string, *apiError) {
	if s, ok := parseString(b["content"]); ok || !b.has("content") {
		return s, nil
	}
	parts, ok := parseArray(b["content"])
	if !ok {
		return "", invalid("", "", "%s.tool_result.content: Input should be a valid list", path)
	}
	var out strings.Builder
	for k, raw := range parts {
		part, _ := parseObject(raw)
		switch kind := part.text("type"); kind {
		case "text":
			if part.text("text") == "" {
				return "", invalid("", "", "messages: text content blocks must be non-empty")
			}
			out.WriteString(part.text("text"))
		case "image", "document", "search_result", "tool_reference":
			out.WriteString(imagePlaceholder(raw))
		default:
			return "", invalid("", "", "%s.tool_result.content.%d: Input tag '%s' found using 'type' does not match any of the expected tags: 'document', 'image', 'search_result', 'text', 'tool_reference'", path, k, kind)
		}
	}
	return out.String(), nil
}

// checkPairs requires a result in the next message for every call, and no other results. Consecutive
// messages of one role count as one.
func checkPairs(turns []messageInfo) *apiError {
	var caller messageInfo // the last message with calls
	var answered []string
	flush := func() *apiError {
		lost := slices.DeleteFunc(slices.Clone(caller.calls), func(id string) bool { return slices.Contains(answered, id) })
		if len(lost) == 0 {
			return nil
		}
		return invalid("", "", "messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", caller.index, strings.Join(lost, ", "))
	}
	for i, t := range turns {
		if t.role == "assistant" {
			if i > 0 && turns[i-1].role == "assistant" {
				caller.calls = append(caller.calls, t.calls...)
				continue
			}
			if apiErr := flush(); apiErr != nil {
				return apiErr
			}
			caller, answered = t, nil
			continue
		}
		for j, id := range t.results {
			if !slices.Contains(caller.calls, id) {
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

// checkThinking requires a thinking block before the last message's tool calls.
func (m *messageReader) checkThinking(turns []messageInfo) *apiError {
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
