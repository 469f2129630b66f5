package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"
)

const (
	barStream = time.Millisecond // that a proxy may add to p99
	barPassed = 0.7              // share of the bytes: if more reaches the provider, hardly anything was masked
)

// requestSize is the size and number of the requests of a round.
type requestSize struct {
	bytes, requests int
	bar             float64 // share of the bare proxy's throughput
}

var requestSizes = []requestSize{{200_000, 120, .8}, {2_000_000, 24, .6}}

// effort is how much is measured.
type effort struct {
	shapes       []string
	rounds       int
	stride       int // turns between the requests of a growing conversation
	streamRounds int
	events       int // of a stream
}

var (
	brief = effort{shapes: []string{"chat"}, rounds: 3, stride: 4, streamRounds: 3, events: 45}
	full  = effort{shapes: []string{"chat", "messages", "responses"}, rounds: 9, stride: 1, streamRounds: 5, events: 150}
)

// benchLLMProxy compares the gateway's LLM proxy with other proxies and reports whether every bar was met.
func benchLLMProxy(ctx context.Context, e effort) (held bool, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return false, err
	}
	server := &http.Server{Handler: provider(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	defer func() { _ = server.Close() }()
	text, err := toolText()
	if err != nil {
		return false, err
	}
	h, err := startProxies(ctx, ln.Addr().String())
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	held = true
	for _, shape := range e.shapes {
		for _, size := range requestSizes {
			for _, grows := range []bool{false, true} {
				ok, err := h.compare(ctx, task{shape, text, size, e.growth(grows)}, e.rounds)
				if err != nil {
					return false, err
				}
				held = held && ok
			}
		}
	}
	ok, err := h.compareStreams(ctx, text, e)
	return held && ok, err
}

func (e effort) growth(grows bool) int {
	if grows {
		return e.stride
	}
	return 0
}

// toolText is text as tools return it: source files, documents and logs.
func toolText() (string, error) {
	source, err1 := repositoryText(".go", 3000)
	prose, err2 := repositoryText(".md", 1000)
	return source + prose + logText(50_000), errors.Join(err1, err2)
}

// task is one kind of request.
type task struct {
	shape string
	text  string
	requestSize
	grows int // turns by which each request is longer than the last; 0: all are equal
}

func (t task) String() string {
	how := "the same request repeated"
	if t.grows > 0 {
		how = fmt.Sprintf("growing to that, by %d at a time", t.grows)
	}
	return fmt.Sprintf("%s, 400 messages, %d KB, %s", t.shape, t.bytes/1000, how)
}

// newWorkload makes the workload of a round. Growing conversations are new in each round.
func (t task) newWorkload(stamp string) (w workload, err error) {
	if t.grows == 0 {
		stamp = "again"
	}
	for i := range clients {
		c, err := newConversation(t.shape, t.text, t.bytes, fmt.Sprintf("%s%d", stamp, i))
		if err != nil {
			return w, err
		}
		w.conversations = append(w.conversations, c)
	}
	for turn := t.grows; t.grows > 0 && turn <= conversationTurns; turn += t.grows {
		w.turns = append(w.turns, turn)
	}
	if t.grows == 0 {
		w.turns = slices.Repeat([]int{conversationTurns}, t.requests)
	}
	return w, nil
}

// compare sends a task's requests through every proxy in interleaved rounds and prints their speed beside the
// bare proxy.
func (h *proxySet) compare(ctx context.Context, t task, rounds int) (bool, error) {
	results := make([][]roundResult, len(h.proxies))
	for round := range rounds + 1 { // the first warms up
		for i, d := range h.proxies {
			w, err := t.newWorkload(fmt.Sprintf("%d.%d.%d.", t.bytes, round, i))
			if err != nil {
				return false, err
			}
			if d.isSlow {
				w = w.reduced()
			}
			p, err := w.sendThrough(ctx, d)
			if err != nil {
				return false, err
			}
			if round > 0 {
				results[i] = append(results[i], p)
			}
		}
	}
	fmt.Printf("\n%s (%d clients, %d rounds)\n", t, clients, rounds)
	held := true
	for i, d := range h.proxies {
		held = h.printResult(d, results[i], results[h.bareIndex()], t) && held
	}
	return held, nil
}

func (h *proxySet) bareIndex() int {
	return slices.IndexFunc(h.proxies, func(d *proxy) bool { return d.name == bareName })
}

// printResult prints a proxy's results for a task and reports whether it is fast enough.
func (h *proxySet) printResult(d *proxy, results, bare []roundResult, t task) bool {
	ratio := median(results, func(round int, p roundResult) float64 { return p.rate / bare[round].rate })
	passed := median(results, func(_ int, p roundResult) float64 { return p.passed })
	verdict, held := "", true
	if d.isGateway {
		// A growing conversation includes storing each original on disk: printed without a bar.
		verdict = "no bar"
		if t.grows == 0 {
			held = ratio >= t.bar
			verdict = verdictText(held, "≥ %.1f×", t.bar)
		}
		if passed > barPassed {
			verdict += ", but hardly anything was masked"
		}
	}
	fmt.Printf("  %-13s %7.0f requests/s  %5.2f × the bare proxy  %6.2f ms of CPU each  %3.0f %% of the bytes passed on   %s\n", d.name,
		median(results, func(_ int, p roundResult) float64 { return p.rate }), ratio,
		median(results, func(_ int, p roundResult) float64 { return ms(p.cpu) }), 100*passed, verdict)
	return held
}

// compareStreams compares the latency of streams through every proxy with direct ones.
func (h *proxySet) compareStreams(ctx context.Context, text string, e effort) (bool, error) {
	t, err := newConversation("chat", text, requestSizes[0].bytes, "stream")
	if err != nil {
		return false, err
	}
	rounds := make([][]latencies, len(h.proxies))
	for range e.streamRounds {
		for i, d := range h.proxies {
			s, err := streamThrough(ctx, d, t, e.events)
			if err != nil {
				return false, err
			}
			rounds[i] = append(rounds[i], s)
		}
	}
	fmt.Printf("\n%d streams, an event every %s each, %d rounds: latency of events\n", streams, streamPause, e.streamRounds)
	held := true
	for i, d := range h.proxies {
		direct, bare := rounds[0], rounds[h.bareIndex()]
		p50 := median(rounds[i], func(_ int, s latencies) float64 { return ms(s.p50) })
		p99 := median(rounds[i], func(_ int, s latencies) float64 { return ms(s.p99) })
		added := median(rounds[i], func(n int, s latencies) float64 { return ms(s.p99 - direct[n].p99) })
		beside := median(rounds[i], func(n int, s latencies) float64 { return ms(s.p99 - bare[n].p99) })
		verdict := ""
		if broken := median(rounds[i], func(_ int, s latencies) float64 { return float64(s.broken) }); broken > 0 {
			verdict = fmt.Sprintf("%.0f streams broke", broken)
		}
		if d.isGateway {
			held = held && added <= ms(barStream)
			verdict = verdictText(added <= ms(barStream), "≤ %s added", barStream)
		}
		fmt.Printf("  %-13s p50 %6.2f ms   p99 %6.2f ms   %+6.2f ms at p99 to none, %+6.2f ms to the bare proxy   %s\n", d.name, p50, p99, added, beside, verdict)
	}
	return held, nil
}

// median is the median of a figure over all rounds.
func median[T any](rounds []T, of func(round int, v T) float64) float64 {
	values := make([]float64, len(rounds))
	for i, v := range rounds {
		values[i] = of(i, v)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
