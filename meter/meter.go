// Package meter holds every metric of the gateway: one file of names and help texts, so that a
// dashboard can be written by reading it. Label values come from closed lists (configured
// servers, fault kinds), so that no caller can make new time series.
//
// Counting never fails and never blocks a call.
package meter

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Meter is the registry and what is counted in it.
type Meter struct {
	registry *prometheus.Registry

	calls         *prometheus.HistogramVec
	inFlight      prometheus.Gauge
	bytesIn       *prometheus.CounterVec
	bytesOut      *prometheus.CounterVec
	charsCut      *prometheus.CounterVec
	kept          *prometheus.CounterVec
	whole         *prometheus.CounterVec
	unrecoverable *prometheus.CounterVec
	restarts      *prometheus.CounterVec
	up            *prometheus.GaugeVec

	llm    llm
	ledger *ledger
}

// Store is what is kept at the moment of a scrape.
type Store struct{ Items, Bytes int64 }

// New makes the registry. store is asked at each scrape; false means that it did not answer.
func New(version string, store func() (Store, bool)) *Meter {
	byServer := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"server"})
	}
	m := &Meter{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ctxgate_call_duration_seconds",
			Help:    "How long calls to upstream servers took, by server and outcome (ok, or the kind of failure).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"server", "outcome"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ctxgate_calls_in_flight", Help: "Calls that are waiting for an upstream server.",
		}),
		bytesIn:       byServer("ctxgate_reply_bytes_in_total", "Bytes of replies as upstream servers sent them."),
		bytesOut:      byServer("ctxgate_reply_bytes_out_total", "Bytes of replies as clients got them."),
		charsCut:      byServer("ctxgate_chars_cut_total", "Characters left out of replies."),
		kept:          byServer("ctxgate_originals_kept_total", "Strings cut whose originals can be read back."),
		whole:         byServer("ctxgate_sent_whole_total", "Strings sent whole because their originals could not be kept."),
		unrecoverable: byServer("ctxgate_unrecoverable_total", "Strings cut for good. Must stay 0 unless recall is off or hard_limit_bytes is set."),
		restarts:      byServer("ctxgate_server_restarts_total", "Connections to a server that were lost, and programs that ended; each is made again."),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ctxgate_server_up", Help: "1 while the connection that all clients share is up.",
		}, []string{"server"}),
	}
	m.registry.MustRegister(m.restarts, m.up, m.calls, m.inFlight, m.bytesIn, m.bytesOut, m.charsCut, m.kept, m.whole, m.unrecoverable,
		&storeCollector{ask: store}, buildInfo(version), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.llm = newLLM(m.registry)
	m.ledger = newLedger(m.registry)
	return m
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ctxgate_build_info", Help: "Always 1; the version is the label."}, []string{"version"})
	g.WithLabelValues(version).Set(1)
	return g
}

// Server makes a server's series exist from the start, so that a counter that must stay 0 is
// there to be seen at 0.
func (m *Meter) Server(id string) {
	for _, c := range []*prometheus.CounterVec{m.bytesIn, m.bytesOut, m.charsCut, m.kept, m.whole, m.unrecoverable, m.restarts} {
		c.WithLabelValues(id)
	}
}

// Memory is what callers hold at the moment of a scrape.
type Memory struct{ Budget, Held, Refused int64 }

// Memory registers the memory budget, which is asked at each scrape.
func (m *Meter) Memory(ask func() Memory) {
	gauge := func(name, help string, value func(Memory) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(ask())) })
	}
	m.registry.MustRegister(
		gauge("ctxgate_memory_budget_bytes", "The most bytes that requests, replies and lists may hold together.", func(now Memory) int64 { return now.Budget }),
		gauge("ctxgate_memory_held_bytes", "Bytes that requests, replies and lists hold now, with what is set aside for recent conversations.", func(now Memory) int64 { return now.Held }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ctxgate_memory_refused_total", Help: "How often something was refused because the memory budget, or its caller's share of it, was used up.",
		}, func() float64 { return float64(ask().Refused) }))
}

// Restart counts a connection that was lost.
func (m *Meter) Restart(server string) { m.restarts.WithLabelValues(server).Inc() }

// Up says whether the connection that all clients share is up.
func (m *Meter) Up(server string, up bool) {
	v := 0.0
	if up {
		v = 1
	}
	m.up.WithLabelValues(server).Set(v)
}

// Begin counts a call under way; the function it returns ends it with its outcome.
func (m *Meter) Begin(server string) func(outcome string) {
	m.inFlight.Inc()
	start := time.Now()
	return func(outcome string) {
		m.inFlight.Dec()
		m.calls.WithLabelValues(server, outcome).Observe(time.Since(start).Seconds())
	}
}

// Reply is what became of one reply.
type Reply struct {
	BytesIn, BytesOut, CharsCut int64
	Kept, Whole, Lost           int
}

// Count adds a reply.
func (m *Meter) Count(server string, r Reply) {
	m.bytesIn.WithLabelValues(server).Add(float64(r.BytesIn))
	m.bytesOut.WithLabelValues(server).Add(float64(r.BytesOut))
	if r.CharsCut+int64(r.Whole) == 0 {
		return
	}
	m.charsCut.WithLabelValues(server).Add(float64(r.CharsCut))
	m.kept.WithLabelValues(server).Add(float64(r.Kept))
	m.whole.WithLabelValues(server).Add(float64(r.Whole))
	m.unrecoverable.WithLabelValues(server).Add(float64(r.Lost))
}

// Handler serves the metrics in Prometheus' formats.
func (m *Meter) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

var (
	storeItems = prometheus.NewDesc("ctxgate_store_items", "Items in the store.", nil, nil)
	storeBytes = prometheus.NewDesc("ctxgate_store_bytes", "Bytes in the store.", nil, nil)
	storeUp    = prometheus.NewDesc("ctxgate_store_up", "1 when the store answered this scrape.", nil, nil)
)

// storeCollector asks the store when it is scraped.
type storeCollector struct{ ask func() (Store, bool) }

func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- storeItems
	ch <- storeBytes
	ch <- storeUp
}

func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	s, ok := c.ask()
	if !ok {
		ch <- prometheus.MustNewConstMetric(storeUp, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(storeUp, prometheus.GaugeValue, 1)
	ch <- prometheus.MustNewConstMetric(storeItems, prometheus.GaugeValue, float64(s.Items))
	ch <- prometheus.MustNewConstMetric(storeBytes, prometheus.GaugeValue, float64(s.Bytes))
}
