package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// messagesFields are the members of a request that Anthropic knows; messagesBeta those it knows
// when a beta is asked for.
var (
	messagesFields = words(`model messages max_tokens cache_control container context_management diagnostics
		inference_geo metadata output_config service_tier speed stop_sequences stream system temperature
		thinking tool_choice tools top_k top_p`)
	messagesBeta = words("betas mcp_servers output_format fallbacks")
)

// maxMessages is the largest body that is taken.
const maxMessages = 32 << 20

// readMessages reads and checks a request of the shape of messages.
func readMessages(p *Provider, r *http.Request, body []byte) (*ask, *refusal) {
	if r.Header.Get("Anthropic-Version") == "" {
		return nil, invalid("", "", "anthropic-version: header is required")
	}
	if len(body) > maxMessages {
		return nil, Failure{Status: http.StatusRequestEntityTooLarge}.refusal(Messages, "")
	}
	f, ok := fieldsOf(body)
	if !ok {
		return nil, invalid("", "", "The request body is not valid JSON: Expecting value: line 1 column 1 (char 0)")
	}
	known := messagesFields
	if r.Header.Get("Anthropic-Beta") != "" {
		known = append(append([]string{}, known...), messagesBeta...)
	}
	if key, odd := f.unknown(known...); odd && !p.opts.Lenient {
		return nil, extra(key)
	}
	m := &messageReader{ask: ask{model: f.text("model"), stream: f.is("stream"), usage: true}, lenient: p.opts.Lenient}
	for _, read := range []func(fields) *refusal{m.needed, m.budget, m.readTools, m.readSystem, m.readTurns, m.marks} {
		if bad := read(f); bad != nil {
			return nil, bad
		}
	}
	return &m.ask, nil
}

func extra(path string) *refusal {
	return invalid("", "", "%s: Extra inputs are not permitted", path)
}

// messageReader reads one request of messages from its tools to its last block.
type messageReader struct {
	ask
	lenient  bool
	thinking bool
	counted  bool // this is a request to count tokens, which needs no limit
	ids      map[string]bool
	paths    []string // of the blocks that carry a breakpoint, for messages about them
}

func (m *messageReader) needed(f fields) *refusal {
	for _, key := range []string{"max_tokens", "messages", "model"} {
		if !f.given(key) && (key != "max_tokens" || !m.counted) {
			return invalid("", "", "%s: Field required", key)
		}
	}
	if !m.counted && numberOf(f["max_tokens"]) < 1 {
		return invalid("", "", "max_tokens: Input should be greater than or equal to 1")
	}
	return nil
}

func (m *messageReader) budget(f fields) *refusal {
	t, _ := fieldsOf(f["thinking"])
	m.thinking = t.text("type") == "enabled"
	budget := numberOf(t["budget_tokens"])
	switch {
	case !m.thinking:
		return nil
	case budget < 1024:
		return invalid("", "", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case !m.counted && numberOf(f["max_tokens"]) <= budget:
		return invalid("", "", "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size")
	}
	return nil
}

func (m *messageReader) readTools(f fields) *refusal {
	tools, _ := listOf(f["tools"])
	for i, raw := range tools {
		t, _ := fieldsOf(raw)
		path := fmt.Sprintf("tools.%d", i)
		name := t.text("name")
		if name == "" && t.text("type") != "mcp_toolset" {
			return invalid("", "", "%s.custom.name: Field required", path)
		}
		if custom := !t.given("type") || t.text("type") == "custom"; custom && !t.given("input_schema") {
			return invalid("", "", "%s.custom.input_schema: Field required", path)
		}
		m.tools = append(m.tools, name)
		if bad := m.block(path, t, "<tool>"+withoutMark(raw, t)); bad != nil {
			return bad
		}
	}
	return nil
}

// withoutMark is the object as the model reads it: where a breakpoint lies is not part of it.
func withoutMark(raw json.RawMessage, f fields) string {
	if _, ok := f["cache_control"]; !ok {
		return compact(raw)
	}
	// The decoder keeps the order of members, which a map would lose.
	var b strings.Builder
	dec := json.NewDecoder(strings.NewReader(compact(raw)))
	_, _ = dec.Token()
	b.WriteByte('{')
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		if dec.Decode(&value) != nil || key == json.Token("cache_control") {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", key, value)
	}
	b.WriteByte('}')
	return b.String()
}

func (m *messageReader) readSystem(f fields) *refusal {
	if s, ok := textOf(f["system"]); ok && s != "" {
		m.prompt.add("<system>", s)
	}
	parts, _ := listOf(f["system"])
	for i, raw := range parts {
		part, _ := fieldsOf(raw)
		path := fmt.Sprintf("system.%d", i)
		if part.text("type") != "text" {
			return invalid("", "", "%s.type: Input should be 'text'", path)
		}
		if part.text("text") == "" {
			return invalid("", "", "system: text content blocks must be non-empty")
		}
		if bad := m.block(path, part, "<system>"+part.text("text")); bad != nil {
			return bad
		}
	}
	return nil
}

// block adds a block to the prompt, with the breakpoint that it carries.
func (m *messageReader) block(path string, f fields, text string) *refusal {
	b := block{text: text}
	if f.given("cache_control") {
		life, bad := lifeOf(path, f["cache_control"])
		if bad != nil {
			return bad
		}
		b.mark = life
		m.paths = append(m.paths, path)
	}
	m.prompt = append(m.prompt, b)
	return nil
}

func lifeOf(path string, raw json.RawMessage) (time.Duration, *refusal) {
	c, _ := fieldsOf(raw)
	if c.text("type") != "ephemeral" {
		return 0, invalid("", "", "%s.cache_control: Input tag '%s' found using 'type' does not match any of the expected tags: 'ephemeral'", path, c.text("type"))
	}
	switch ttl := c.text("ttl"); {
	case ttl == "1h":
		return longLife, nil
	case ttl == "5m" || !c.given("ttl"):
		return shortLife, nil
	}
	return 0, invalid("", "", "%s.cache_control.ephemeral.ttl: Input should be '5m' or '1h'", path)
}

// marks checks the breakpoints as a whole, and sets the one that the request as a whole asks for.
func (m *messageReader) marks(f fields) *refusal {
	if f.given("cache_control") && len(m.prompt) > 0 {
		life, bad := lifeOf("", f["cache_control"])
		if bad != nil {
			return bad
		}
		if last := &m.prompt[len(m.prompt)-1]; last.mark == 0 {
			last.mark = life
			m.paths = append(m.paths, "cache_control")
		}
	}
	if len(m.paths) > maxMarks {
		return invalid("", "", "A maximum of %d blocks with cache_control may be provided. Found %d.", maxMarks, len(m.paths))
	}
	short, n := false, 0
	for _, b := range m.prompt {
		if b.mark == 0 {
			continue
		}
		if b.mark == longLife && short {
			return invalid("", "", "%s.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.", m.paths[n])
		}
		short = short || b.mark == shortLife
		n++
	}
	return nil
}
