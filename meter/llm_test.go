package meter_test

import (
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/meter"
)

func TestLLM(t *testing.T) {
	m := meter.New("v", func() (meter.Store, bool) { return meter.Store{}, true })
	m.Provider("idle")
	done := m.BeginLLM()
	has(t, scrape(t, m), "ctxgate_llm_requests_in_flight 1")
	m.FirstByte("kimi", time.Second)
	m.Retry("kimi")
	m.Fallback("kimi")
	m.CountTokens("kimi", meter.Tokens{Fresh: 1, Cached: 2, Created: 3, Output: 4})
	done("kimi", "ok")
	m.BeginLLM()("", "invalid") // refused before there was a provider
	has(t, scrape(t, m),
		"ctxgate_llm_requests_in_flight 0",
		`ctxgate_llm_requests_total{provider="kimi",result="ok"} 1`,
		`ctxgate_llm_requests_total{provider="idle",result="ok"} 0`,
		`ctxgate_llm_retries_total{provider="kimi"} 1`,
		`ctxgate_llm_fallbacks_total{provider="kimi"} 1`,
		`ctxgate_llm_tokens_total{kind="fresh",provider="kimi"} 1`,
		`ctxgate_llm_tokens_total{kind="cached",provider="kimi"} 2`,
		`ctxgate_llm_tokens_total{kind="created",provider="kimi"} 3`,
		`ctxgate_llm_tokens_total{kind="output",provider="kimi"} 4`,
		`ctxgate_llm_tokens_total{kind="output",provider="idle"} 0`,
		`ctxgate_llm_first_byte_seconds_count{provider="kimi"} 1`,
	)
}
