// Package meter holds the gateway's metrics and the accounts of what masking saved.
//
// Path through the files: meter.go has the metrics of MCP servers, memory and store; llm.go those of LLM
// providers; ledger.go the accounts by tenant, provider, model and tool; costmodel.go estimates what one
// reply cost, and would have cost without cuts; today.go counts what was cut and read back today.
//
// Label values come from closed lists (configured servers and providers, fault kinds), so that no caller can
// create time series. Counting never fails and never blocks a call.
package meter

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Meter is a registry with all metrics.
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

	llm    llmMetrics
	ledger *ledger
	day    *dayCounter
}

// StoreStats is the content of the store at the time of a scrape.
type StoreStats struct{ Items, Bytes int64 }

// New makes a meter. store is called at each scrape; it returns false if the store does not answer.
func New(version string, store func() (StoreStats, bool)) *Meter {
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
			Name: "ctxgate_calls_in_flight", Help: "Calls that wait for an upstream server.",
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
		&storeCollector{readStats: store}, buildInfo(version), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.llm = newLLMMetrics(m.registry)
	m.ledger = newLedger(m.registry)
	m.day = newDayCounter(time.Now)
	return m
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ctxgate_build_info", Help: "Always 1; the version is the label."}, []string{"version"})
	g.WithLabelValues(version).Set(1)
	return g
}

// AddServer creates a server's series with the value 0, so that a counter that must stay 0 is visible.
func (m *Meter) AddServer(id string) {
	for _, c := range []*prometheus.CounterVec{m.bytesIn, m.bytesOut, m.charsCut, m.kept, m.whole, m.unrecoverable, m.restarts} {
		c.WithLabelValues(id)
	}
}

// MemoryStats is the state of the memory budget at the time of a scrape.
type MemoryStats struct{ Budget, Held, Refused int64 }

// RegisterMemory adds the metrics of the memory budget. ask is called at each scrape.
func (m *Meter) RegisterMemory(ask func() MemoryStats) {
	gauge := func(name, help string, value func(MemoryStats) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(ask())) })
	}
	m.registry.MustRegister(
		gauge("ctxgate_memory_budget_bytes", "The most bytes that requests, replies and lists may hold together.", func(now MemoryStats) int64 { return now.Budget }),
		gauge("ctxgate_memory_held_bytes", "Bytes that requests, replies and lists hold now, with what is set aside for recent conversations.", func(now MemoryStats) int64 { return now.Held }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ctxgate_memory_refused_total", Help: "How often something was refused because the memory budget, or its caller's share of it, was used up.",
		}, func() float64 { return float64(ask().Refused) }))
}

// ReplicationStats is the state of the store's replicas at the time of a scrape.
type ReplicationStats struct {
	Missing  int64
	Refusing bool
}

// RegisterReplication adds the metrics of a store with replicas. ask is called at each scrape.
func (m *Meter) RegisterReplication(ask func() ReplicationStats) {
	gauge := func(name, help string, value func(ReplicationStats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(ask()) })
	}
	m.registry.MustRegister(
		gauge("ctxgate_store_replicas_missing", "Replicas of the store that must be back before anything is kept again. Must stay 0.", func(now ReplicationStats) float64 { return float64(now.Missing) }),
		gauge("ctxgate_store_refusing", "1 while nothing is kept, because a server of the store might lose it: a replica is missing, or a setting is wrong.", func(now ReplicationStats) float64 {
			if now.Refusing {
				return 1
			}
			return 0
		}))
}

// AuditStats is the state of the audit log at the time of a scrape.
type AuditStats struct {
	Lines, Dropped int64
	Failing        bool
}

// RegisterAudit adds the metrics of the audit log. ask is called at each scrape.
func (m *Meter) RegisterAudit(ask func() AuditStats) {
	counter := func(name, help string, value func(AuditStats) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(ask())) })
	}
	m.registry.MustRegister(
		counter("ctxgate_audit_lines_total", "Lines written to the audit log.", func(now AuditStats) int64 { return now.Lines }),
		counter("ctxgate_audit_dropped_total", "Decisions that could not be written to the audit log. Must stay 0.", func(now AuditStats) int64 { return now.Dropped }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ctxgate_audit_failing", Help: "1 while the audit log cannot be written."}, func() float64 {
			if ask().Failing {
				return 1
			}
			return 0
		}))
}

// CountRestart counts a lost connection.
func (m *Meter) CountRestart(server string) { m.restarts.WithLabelValues(server).Inc() }

// SetServerUp records whether the shared connection to a server is up.
func (m *Meter) SetServerUp(server string, up bool) {
	v := 0.0
	if up {
		v = 1
	}
	m.up.WithLabelValues(server).Set(v)
}

// StartCall counts a call in flight. The caller ends it with the returned function.
func (m *Meter) StartCall(server string) func(outcome string) {
	m.inFlight.Inc()
	start := time.Now()
	return func(outcome string) {
		m.inFlight.Dec()
		m.calls.WithLabelValues(server, outcome).Observe(time.Since(start).Seconds())
	}
}

// ReplyStats is what was done to one reply.
type ReplyStats struct {
	BytesIn, BytesOut, CharsCut int64
	Kept, Whole, Lost           int
}

// CountReply counts a reply.
func (m *Meter) CountReply(server string, r ReplyStats) {
	m.bytesIn.WithLabelValues(server).Add(float64(r.BytesIn))
	m.bytesOut.WithLabelValues(server).Add(float64(r.BytesOut))
	if r.CharsCut+int64(r.Whole) == 0 {
		return
	}
	m.charsCut.WithLabelValues(server).Add(float64(r.CharsCut))
	m.kept.WithLabelValues(server).Add(float64(r.Kept))
	m.whole.WithLabelValues(server).Add(float64(r.Whole))
	m.unrecoverable.WithLabelValues(server).Add(float64(r.Lost))
	m.day.count(func(d *Day) {
		d.TextsCut += int64(r.Kept + r.Lost)
		d.CharsCut += r.CharsCut
		d.SentWhole += int64(r.Whole)
		d.Unrecoverable += int64(r.Lost)
	})
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

// storeCollector reads the store's statistics at each scrape.
type storeCollector struct{ readStats func() (StoreStats, bool) }

func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- storeItems
	ch <- storeBytes
	ch <- storeUp
}

func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	s, ok := c.readStats()
	if !ok {
		ch <- prometheus.MustNewConstMetric(storeUp, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(storeUp, prometheus.GaugeValue, 1)
	ch <- prometheus.MustNewConstMetric(storeItems, prometheus.GaugeValue, float64(s.Items))
	ch <- prometheus.MustNewConstMetric(storeBytes, prometheus.GaugeValue, float64(s.Bytes))
}
