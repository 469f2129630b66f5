package history

import (
	"fmt"
	"strings"
	"testing"
)

// The reason why nothing is masked is said in plain words, with the figures of the decision.
func TestWhyNot(t *testing.T) {
	conversation := func(turns int, result, mark string) []byte {
		b := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"}`
		for i := range turns {
			b += fmt.Sprintf(`,{"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"read","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":%q%s}]}`, i, i, result, mark)
		}
		return []byte(b + "]}")
	}
	long := strings.Repeat("some text of a file ", 200)
	const mark = `,"cache_control":{"type":"ephemeral"}`
	for name, tt := range map[string]struct {
		turns        int
		result, mark string
		change       func(*Policy)
		want         string
	}{
		"off":        {9, long, mark, func(p *Policy) { p.Enabled = false }, "masking is off"},
		"no results": {0, long, mark, nil, "the conversation has no tool results yet"},
		"young":      {6, long, mark, nil, "6 tool turns so far, and the results of the last 8 stay whole"},
		"one turn":   {1, long, mark, nil, "1 tool turn so far, and the results of the last 8 stay whole"},
		"short":      {10, "ok", mark, nil, "2 old results would not get shorter, or must stay: errors, images, results without a call"},
		"errors":     {9, "Traceback\n" + long, mark, nil, "1 old result would not get shorter, or must stay: errors, images, results without a call"},
		"marks":      {12, long, mark, func(p *Policy) { p.PastBreakpoints = false }, "the client marks its messages for the provider's cache, and past_breakpoints is off"},
		"warm":       {10, long, mark, nil, "the provider's cache is warm: masking 2 old results now would cost about …"},
		"pressure":   {12, long, mark, func(p *Policy) { p.Advance = AdvancePressure }, "the request has about 14,702 tokens; masking starts above 60,000, if it clears at least 10,000"},
		"stride":     {12, long, mark, func(p *Policy) { p.Advance = AdvanceStride }, "the window moves every 16 turns"},
		"masking":    {60, long, mark, nil, ""},
		"no cache":   {9, long, "", nil, ""},
	} {
		p := DefaultPolicy()
		p.PastBreakpoints = true
		if tt.change != nil {
			tt.change(&p)
		}
		d := mustRead(t, anthropicMessages, conversation(tt.turns, tt.result, tt.mark))
		if got := d.Plan(p, CachePrices{Write: 1.25, Read: .1}, nil).WhyNot(); got != tt.want && (!strings.HasSuffix(tt.want, "…") || !strings.HasPrefix(got, strings.TrimSuffix(tt.want, "…"))) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
