package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// llmMetrics are the metrics of the LLM endpoint. Models are no label: clients choose their names.
type llmMetrics struct {
	requests  *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	retries   *prometheus.CounterVec
	fallbacks *prometheus.CounterVec
	firstByte *prometheus.HistogramVec
	inFlight  prometheus.Gauge
}

func newLLMMetrics(r prometheus.Registerer) llmMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := llmMetrics{
		requests:  counter("ctxgate_llm_requests_total", "Requests to LLM providers, by the provider asked last and the result: ok, cut (broken off), rejected (4xx), rate_limited (429), failed (any other status), or the kind of failure.", "provider", "result"),
		tokens:    counter("ctxgate_llm_tokens_total", "Tokens by the providers' own usage: fresh, cached and created (written to the cache) input, and output.", "provider", "kind"),
		retries:   counter("ctxgate_llm_retries_total", "Requests made again to the same provider.", "provider"),
		fallbacks: counter("ctxgate_llm_fallbacks_total", "Requests that this provider failed and its fallback was asked.", "provider"),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ctxgate_llm_first_byte_seconds",
			Help:    "How long replies took to begin, retries and fallbacks included.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"provider"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ctxgate_llm_requests_in_flight", Help: "Requests to LLM providers in flight, replies being streamed included."}),
	}
	r.MustRegister(m.requests, m.tokens, m.retries, m.fallbacks, m.firstByte, m.inFlight)
	return m
}

// AddProvider creates a provider's series with the value 0.
func (m *Meter) AddProvider(name string) {
	m.llm.requests.WithLabelValues(name, "ok")
	m.llm.retries.WithLabelValues(name)
	m.llm.fallbacks.WithLabelValues(name)
	m.CountTokens(name, Tokens{})
	m.ledger.addProvider(name)
}

// StartLLMRequest counts a request in flight. The caller ends it with the returned function, with the
// provider that was asked last.
func (m *Meter) StartLLMRequest() func(provider, result string) {
	m.llm.inFlight.Inc()
	return func(provider, result string) {
		m.llm.inFlight.Dec()
		if provider != "" {
			m.llm.requests.WithLabelValues(provider, result).Inc()
		}
	}
}

// ObserveFirstByte records how long a reply took to begin.
func (m *Meter) ObserveFirstByte(provider string, took time.Duration) {
	m.llm.firstByte.WithLabelValues(provider).Observe(took.Seconds())
}

// CountRetry counts a request that is sent again to the same provider.
func (m *Meter) CountRetry(provider string) { m.llm.retries.WithLabelValues(provider).Inc() }

// CountFallback counts a request that this provider failed and a fallback is asked for.
func (m *Meter) CountFallback(provider string) { m.llm.fallbacks.WithLabelValues(provider).Inc() }

// Tokens is the usage of a reply as the provider reports it. Long is the part of Created that its cache
// keeps for an hour.
type Tokens struct{ Fresh, Cached, Created, Long, Output int64 }

// MaxTokens bounds each figure of a reply's usage. No model reads or writes as much in one reply: a larger
// figure is a provider's mistake and must not spoil the sums.
const MaxTokens = 1_000_000_000

// clamped is t with every figure between 0 and MaxTokens.
func (t Tokens) clamped() Tokens {
	for _, n := range []*int64{&t.Fresh, &t.Cached, &t.Created, &t.Long, &t.Output} {
		*n = min(max(*n, 0), MaxTokens)
	}
	t.Long = min(t.Long, t.Created)
	return t
}

// CountTokens adds the usage of a reply.
func (m *Meter) CountTokens(provider string, t Tokens) {
	t = t.clamped()
	for kind, n := range map[string]int64{"fresh": t.Fresh, "cached": t.Cached, "created": t.Created, "output": t.Output} {
		m.llm.tokens.WithLabelValues(provider, kind).Add(float64(n))
	}
}
