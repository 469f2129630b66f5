package meter_test

import (
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/meter"
)

func TestLLM(t *testing.T) {
	m := newMeter()
	m.AddProvider("idle")
	done := m.StartLLMRequest()
	checkLines(t, scrape(t, m), "ctxgate_llm_requests_in_flight 1")
	m.ObserveFirstByte("kimi", time.Second)
	m.CountRetry("kimi")
	m.CountFallback("kimi")
	m.CountTokens("kimi", meter.Tokens{Fresh: 1, Cached: 2, Created: 3, Output: 4})
	done("kimi", "ok")
	m.StartLLMRequest()("", "invalid") // refused before a provider was chosen
	checkLines(t, scrape(t, m),
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
