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
	barStream = time.Millisecond // what a door may add to the slowest of a hundred events
	barPassed = 0.7              // of the bytes: where more reaches the provider, nothing much was masked
)

// weight is how large the requests of a round are, and how many.
type weight struct {
	bytes, requests int
	bar             float64 // of the bare proxy's throughput
}

var weights = []weight{{200_000, 120, .8}, {2_000_000, 24, .6}}

// effort is how much is measured.
type effort struct {
	shapes       []string
	rounds       int
	stride       int // turns from one request of a conversation that grows to the next
	streamRounds int
	events       int // of a stream
}

var (
	brief = effort{shapes: []string{"chat"}, rounds: 3, stride: 4, streamRounds: 3, events: 45}
	full  = effort{shapes: []string{"chat", "messages", "responses"}, rounds: 9, stride: 1, streamRounds: 5, events: 150}
)

// modelHolds measures the model's door beside other proxies and says whether every bar was met.
func modelHolds(ctx context.Context, e effort) (held bool, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return false, err
	}
	server := &http.Server{Handler: provider(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	defer func() { _ = server.Close() }()
	text, err := talkText()
	if err != nil {
		return false, err
	}
	h, err := openHouse(ctx, ln.Addr().String())
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	held = true
	for _, shape := range e.shapes {
		for _, size := range weights {
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

// talkText is what tools answer: source files, documents and logs.
func talkText() (string, error) {
	source, err1 := ownText(".go", 3000)
	prose, err2 := ownText(".md", 1000)
	return source + prose + logText(50_000), errors.Join(err1, err2)
}

// task is one kind of request.
type task struct {
	shape string
	text  string
	weight
	grows int // by how many turns every request is longer than the last, from the first on; 0: not at all
}

func (t task) String() string {
	how := "the same request again and again"
	if t.grows > 0 {
		how = fmt.Sprintf("growing to that, by %d at a time", t.grows)
	}
	return fmt.Sprintf("%s, 400 messages, %d KB, %s", t.shape, t.bytes/1000, how)
}

// work makes the work of a round. Conversations that grow are new ones each time.
func (t task) work(stamp string) (w work, err error) {
	if t.grows == 0 {
		stamp = "again"
	}
	for i := range clients {
		talk, err := newTalk(t.shape, t.text, t.bytes, fmt.Sprintf("%s%d", stamp, i))
		if err != nil {
			return w, err
		}
		w.talks = append(w.talks, talk)
	}
	for turn := t.grows; t.grows > 0 && turn <= talkTurns; turn += t.grows {
		w.turns = append(w.turns, turn)
	}
	if t.grows == 0 {
		w.turns = slices.Repeat([]int{talkTurns}, t.requests)
	}
	return w, nil
}

// compare sends a task's requests through every door, a round each in turn, and prints how they
// fare beside the bare proxy.
func (h *house) compare(ctx context.Context, t task, rounds int) (bool, error) {
	paces := make([][]pace, len(h.doors))
	for round := range rounds + 1 { // the first warms up
		for i, d := range h.doors {
			w, err := t.work(fmt.Sprintf("%d.%d.%d.", t.bytes, round, i))
			if err != nil {
				return false, err
			}
			if d.slow {
				w = w.less()
			}
			p, err := w.through(ctx, d)
			if err != nil {
				return false, err
			}
			if round > 0 {
				paces[i] = append(paces[i], p)
			}
		}
	}
	fmt.Printf("\n%s (%d clients, %d rounds)\n", t, clients, rounds)
	held := true
	for i, d := range h.doors {
		held = h.row(d, paces[i], paces[h.bare()], t) && held
	}
	return held, nil
}

func (h *house) bare() int {
	return slices.IndexFunc(h.doors, func(d *door) bool { return d.name == bareName })
}

// row prints what a door made of a task, and says whether it is fast enough.
func (h *house) row(d *door, paces, bare []pace, t task) bool {
	ratio := median(paces, func(round int, p pace) float64 { return p.rate / bare[round].rate })
	passed := median(paces, func(_ int, p pace) float64 { return p.passed })
	verdict, held := "", true
	if d.own {
		// A conversation that grows has its originals put to disk on the way, each once: told, no bar.
		verdict = "no bar"
		if t.grows == 0 {
			held = ratio >= t.bar
			verdict = said(held, "≥ %.1f×", t.bar)
		}
		if passed > barPassed {
			verdict += ", but hardly anything was masked"
		}
	}
	fmt.Printf("  %-13s %7.0f requests/s  %5.2f × the bare proxy  %6.2f ms of CPU each  %3.0f %% of the bytes passed on   %s\n", d.name,
		median(paces, func(_ int, p pace) float64 { return p.rate }), ratio,
		median(paces, func(_ int, p pace) float64 { return ms(p.cpu) }), 100*passed, verdict)
	return held
}

// compareStreams holds streams through every door against those without one.
func (h *house) compareStreams(ctx context.Context, text string, e effort) (bool, error) {
	t, err := newTalk("chat", text, weights[0].bytes, "stream")
	if err != nil {
		return false, err
	}
	spreads := make([][]spread, len(h.doors))
	for range e.streamRounds {
		for i, d := range h.doors {
			s, err := listenThrough(ctx, d, t, e.events)
			if err != nil {
				return false, err
			}
			spreads[i] = append(spreads[i], s)
		}
	}
	fmt.Printf("\n%d streams, an event every %s each, %d rounds: how long events are on their way\n", streams, streamPause, e.streamRounds)
	held := true
	for i, d := range h.doors {
		direct, bare := spreads[0], spreads[h.bare()]
		p50 := median(spreads[i], func(_ int, s spread) float64 { return ms(s.p50) })
		p99 := median(spreads[i], func(_ int, s spread) float64 { return ms(s.p99) })
		added := median(spreads[i], func(n int, s spread) float64 { return ms(s.p99 - direct[n].p99) })
		beside := median(spreads[i], func(n int, s spread) float64 { return ms(s.p99 - bare[n].p99) })
		verdict := ""
		if broken := median(spreads[i], func(_ int, s spread) float64 { return float64(s.broken) }); broken > 0 {
			verdict = fmt.Sprintf("%.0f streams broke off", broken)
		}
		if d.own {
			held = held && added <= ms(barStream)
			verdict = said(added <= ms(barStream), "≤ %s added", barStream)
		}
		fmt.Printf("  %-13s p50 %6.2f ms   p99 %6.2f ms   %+6.2f ms at p99 to none, %+6.2f ms to the bare proxy   %s\n", d.name, p50, p99, added, beside, verdict)
	}
	return held, nil
}

// median is the middle of what of says of each round.
func median[T any](rounds []T, of func(round int, v T) float64) float64 {
	values := make([]float64, len(rounds))
	for i, v := range rounds {
		values[i] = of(i, v)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
