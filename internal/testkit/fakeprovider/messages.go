package fakeprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// messagesFields are the known members of a request; messagesBeta those known with an Anthropic-Beta
// header.
var (
	messagesFields = strings.Fields(`model messages max_tokens cache_control container context_management diagnostics
		inference_geo metadata output_config service_tier speed stop_sequences stream system temperature
		thinking tool_choice tools top_k top_p`)
	messagesBeta = strings.Fields("betas mcp_servers output_format fallbacks")
)

// systemTurnsBeta is in the header of clients that send system messages in the middle of a conversation. Models from
// Opus 4.8 on take them without it.
const systemTurnsBeta = "mid-conversation-system"

var systemTurnsModel = regexp.MustCompile(`^claude-(opus-4-8|[a-z]+-5)`)

// maxToolName is the longest name of a tool.
const maxToolName = 128

// maxMessages is the maximum body size.
const maxMessages = 32 << 20

// readMessages parses and validates a messages request.
func readMessages(p *Provider, r *http.Request, body []byte) (*request, *apiError) {
	if r.Header.Get("Anthropic-Version") == "" {
		return nil, invalid("", "", "anthropic-version: header is required")
	}
	if len(body) > maxMessages {
		return nil, Failure{Status: http.StatusRequestEntityTooLarge}.apiError(Messages, "")
	}
	f, ok := parseObject(body)
	if !ok {
		return nil, invalid("", "", "The request body is not valid JSON: Expecting value: line 1 column 1 (char 0)")
	}
	known := messagesFields
	if r.Header.Get("Anthropic-Beta") != "" {
		known = append(append([]string{}, known...), messagesBeta...)
	}
	if key, odd := f.firstUnknown(known...); odd && !p.opts.AllowUnknownFields {
		return nil, extraField(key)
	}
	m := &messageReader{request: request{model: f.text("model"), stream: f.isTrue("stream"), includeUsage: true}, lenient: p.opts.AllowUnknownFields}
	m.systemTurns = strings.Contains(r.Header.Get("Anthropic-Beta"), systemTurnsBeta) || systemTurnsModel.MatchString(m.model)
	for _, read := range []func(fields) *apiError{m.checkRequired, m.readThinking, m.readTools, m.readSystem, m.readMessageList, m.checkBreakpoints} {
		if apiErr := read(f); apiErr != nil {
			return nil, apiErr
		}
	}
	return &m.request, nil
}

func extraField(path string) *apiError {
	return invalid("", "", "%s: Extra inputs are not permitted", path)
}

// messageReader parses a messages request in the order of the prompt: tools, system, messages.
type messageReader struct {
	request
	lenient   bool
	thinking  bool
	countOnly bool // count_tokens: max_tokens is not required
	// systemTurns allows messages of the role system between the others.
	systemTurns bool
	callIDs     map[string]bool
	paths       []string // of the blocks with a cache breakpoint
}

func (m *messageReader) checkRequired(f fields) *apiError {
	for _, key := range []string{"max_tokens", "messages", "model"} {
		if !f.has(key) && (key != "max_tokens" || !m.countOnly) {
			return invalid("", "", "%s: Field required", key)
		}
	}
	if !m.countOnly && parseInt(f["max_tokens"]) < 1 {
		return invalid("", "", "max_tokens: Input should be greater than or equal to 1")
	}
	return nil
}

func (m *messageReader) readThinking(f fields) *apiError {
	t, _ := parseObject(f["thinking"])
	m.thinking = t.text("type") == "enabled"
	budget := parseInt(t["budget_tokens"])
	switch {
	case !m.thinking:
		return nil
	case budget < 1024:
		return invalid("", "", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	case !m.countOnly && parseInt(f["max_tokens"]) <= budget:
		return invalid("", "", "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size")
	}
	return nil
}

func (m *messageReader) readTools(f fields) *apiError {
	tools, _ := parseArray(f["tools"])
	for i, raw := range tools {
		t, _ := parseObject(raw)
		path := fmt.Sprintf("tools.%d", i)
		name := t.text("name")
		if name == "" && t.text("type") != "mcp_toolset" {
			return invalid("", "", "%s.custom.name: Field required", path)
		}
		if len(name) > maxToolName || name != "" && !isIdentifier(name) {
			return invalid("", "", "%s.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,%d}$'", path, maxToolName)
		}
		if custom := !t.has("type") || t.text("type") == "custom"; custom && !t.has("input_schema") {
			return invalid("", "", "%s.custom.input_schema: Field required", path)
		}
		m.tools = append(m.tools, name)
		if apiErr := m.addBlock(path, t, "<tool>"+withoutCacheControl(raw, t)); apiErr != nil {
			return apiErr
		}
	}
	return nil
}

// withoutCacheControl is the object as the model reads it, without the cache breakpoint.
func withoutCacheControl(raw json.RawMessage, f fields) string {
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

func (m *messageReader) readSystem(f fields) *apiError {
	if s, ok := parseString(f["system"]); ok && s != "" {
		m.prompt.add("<system>", s)
	}
	parts, _ := parseArray(f["system"])
	for i, raw := range parts {
		part, _ := parseObject(raw)
		path := fmt.Sprintf("system.%d", i)
		if part.text("type") != "text" {
			return invalid("", "", "%s.type: Input should be 'text'", path)
		}
		if part.text("text") == "" {
			return invalid("", "", "system: text content blocks must be non-empty")
		}
		if apiErr := m.addBlock(path, part, "<system>"+part.text("text")); apiErr != nil {
			return apiErr
		}
	}
	return nil
}

// addBlock adds a block to the prompt, with its cache breakpoint if it has one.
func (m *messageReader) addBlock(path string, f fields, text string) *apiError {
	b := block{text: text}
	if f.has("cache_control") {
		life, apiErr := parseCacheControl(path, f["cache_control"])
		if apiErr != nil {
			return apiErr
		}
		b.breakpointTTL = life
		m.paths = append(m.paths, path)
	}
	m.prompt = append(m.prompt, b)
	return nil
}

func parseCacheControl(path string, raw json.RawMessage) (time.Duration, *apiError) {
	c, _ := parseObject(raw)
	if c.text("type") != "ephemeral" {
		return 0, invalid("", "", "%s.cache_control: Input tag '%s' found using 'type' does not match any of the expected tags: 'ephemeral'", path, c.text("type"))
	}
	switch ttl := c.text("ttl"); {
	case ttl == "1h":
		return longTTL, nil
	case ttl == "5m" || !c.has("ttl"):
		return shortTTL, nil
	}
	return 0, invalid("", "", "%s.cache_control.ephemeral.ttl: Input should be '5m' or '1h'", path)
}

// checkBreakpoints adds the request's top-level breakpoint and validates all of them.
func (m *messageReader) checkBreakpoints(f fields) *apiError {
	if f.has("cache_control") && len(m.prompt) > 0 {
		life, apiErr := parseCacheControl("", f["cache_control"])
		if apiErr != nil {
			return apiErr
		}
		if last := &m.prompt[len(m.prompt)-1]; last.breakpointTTL == 0 {
			last.breakpointTTL = life
			m.paths = append(m.paths, "cache_control")
		}
	}
	if len(m.paths) > maxBreakpoints {
		return invalid("", "", "A maximum of %d blocks with cache_control may be provided. Found %d.", maxBreakpoints, len(m.paths))
	}
	short, n := false, 0
	for _, b := range m.prompt {
		if b.breakpointTTL == 0 {
			continue
		}
		if b.breakpointTTL == longTTL && short {
			return invalid("", "", "%s.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.", m.paths[n])
		}
		short = short || b.breakpointTTL == shortTTL
		n++
	}
	return nil
}
