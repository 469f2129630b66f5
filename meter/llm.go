package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// llm is what is counted at the LLM door. Models are not a label: clients choose their names.
type llm struct {
	requests  *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	retries   *prometheus.CounterVec
	fallbacks *prometheus.CounterVec
	firstByte *prometheus.HistogramVec
	inFlight  prometheus.Gauge
}

func newLLM(r prometheus.Registerer) llm {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := llm{
		requests:  counter("ctxgate_llm_requests_total", "Requests to LLM providers, by the provider asked last and the result: ok, cut (broken off), rejected (4xx), rate_limited (429), failed (any other status), or the kind of failure.", "provider", "result"),
		tokens:    counter("ctxgate_llm_tokens_total", "Tokens by the providers' own usage: fresh, cached and created (written to the cache) input, and output.", "provider", "kind"),
		retries:   counter("ctxgate_llm_retries_total", "Requests made again to the same provider.", "provider"),
		fallbacks: counter("ctxgate_llm_fallbacks_total", "Requests that this provider failed and its fallback was asked.", "provider"),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ctxgate_llm_first_byte_seconds",
			Help:    "How long replies took to begin, retries and fallbacks included.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"provider"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ctxgate_llm_requests_in_flight", Help: "Requests to LLM providers under way, replies being streamed included."}),
	}
	r.MustRegister(m.requests, m.tokens, m.retries, m.fallbacks, m.firstByte, m.inFlight)
	return m
}

// Provider makes a provider's series exist from the start.
func (m *Meter) Provider(name string) {
	m.llm.requests.WithLabelValues(name, "ok")
	m.llm.retries.WithLabelValues(name)
	m.llm.fallbacks.WithLabelValues(name)
	m.CountTokens(name, Tokens{})
	m.ledger.provider(name)
}

// BeginLLM counts a request under way; the function it returns ends it, with the provider that was
// asked last.
func (m *Meter) BeginLLM() func(provider, result string) {
	m.llm.inFlight.Inc()
	return func(provider, result string) {
		m.llm.inFlight.Dec()
		if provider != "" {
			m.llm.requests.WithLabelValues(provider, result).Inc()
		}
	}
}

// FirstByte counts a reply that began.
func (m *Meter) FirstByte(provider string, took time.Duration) {
	m.llm.firstByte.WithLabelValues(provider).Observe(took.Seconds())
}

// Retry counts a request made again.
func (m *Meter) Retry(provider string) { m.llm.retries.WithLabelValues(provider).Inc() }

// Fallback counts a request that a provider failed and another was asked.
func (m *Meter) Fallback(provider string) { m.llm.fallbacks.WithLabelValues(provider).Inc() }

// Tokens are what a provider says that a reply used. Long is what of Created its cache keeps for an
// hour.
type Tokens struct{ Fresh, Cached, Created, Long, Output int64 }

// MostTokens bounds each figure of a reply's usage. No model reads or writes as much in one reply: a
// larger figure is a provider's mistake, and must not drown the sums that it is added to.
const MostTokens = 1_000_000_000

// clamped is t with every figure between none and MostTokens.
func (t Tokens) clamped() Tokens {
	for _, n := range []*int64{&t.Fresh, &t.Cached, &t.Created, &t.Long, &t.Output} {
		*n = min(max(*n, 0), MostTokens)
	}
	t.Long = min(t.Long, t.Created)
	return t
}

// CountTokens adds what a reply used.
func (m *Meter) CountTokens(provider string, t Tokens) {
	t = t.clamped()
	for kind, n := range map[string]int64{"fresh": t.Fresh, "cached": t.Cached, "created": t.Created, "output": t.Output} {
		m.llm.tokens.WithLabelValues(provider, kind).Add(float64(n))
	}
}
