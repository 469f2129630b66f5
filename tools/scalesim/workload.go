package main

import (
	"math/rand/v2"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// request is one request of an agent, with what it costs and keeps.
type request struct {
	isModel bool
	bytes   int   // of the body, or of the result
	cpu     int64 // ns
	kept    int   // originals
	stored  int   // bytes of each, as stored
	carried int   // originals that the conversation has masked before: of a model request
}

// workload is what agents do: every request of the conversations, equally often.
type workload struct {
	requests []request
	turns    int
}

// maxChars is the length above which tool results are cut: masking.max_chars.
const maxChars = 4000

// messageBytes is what JSON adds to a message of a conversation.
const messageBytes = 150

// newWorkload makes the requests of all conversations. Which requests mask old results depends on the provider's prices; here each has its share.
func newWorkload(c Costs, rng *rand.Rand) *workload {
	w := &workload{}
	for _, t := range trajectories.Synthetic() {
		body := len(t.System) + len(t.Task)
		for _, tool := range t.Tools {
			body += len(tool.Description) + len(tool.Schema)
		}
		masked := 0.
		for _, turn := range t.Turns {
			w.turns++
			w.requests = append(w.requests, c.modelRequest(body, masked, rng))
			masked += c.MaskedPerTurn
			body += len(turn.Thinking) + len(turn.Text) + messageBytes
			for _, use := range turn.ToolUses {
				body += len(use.Result)*11/10 + len(use.Args) + 2*messageBytes // escapes
				w.requests = append(w.requests, c.toolCall(len(use.Result)))
			}
		}
	}
	return w
}

func (c Costs) modelRequest(body int, masked float64, rng *rand.Rand) request {
	r := request{isModel: true, bytes: body, carried: int(masked), stored: int(c.MaskedBytes)}
	r.cpu = between(body, shortModelBytes, longModelBytes, c.ShortModel, c.LongModel)
	r.kept = int(c.MaskedPerTurn)
	if rng.Float64() < c.MaskedPerTurn-float64(r.kept) {
		r.kept++
	}
	return r
}

func (c Costs) toolCall(size int) request {
	if size <= maxChars {
		return request{bytes: size, cpu: between(size, 0, 1<<20, c.Call, c.LargeCall)}
	}
	return request{bytes: size, cpu: between(size, 8<<10, 1<<20, c.Keep, c.LargeKeep), kept: 1, stored: int(c.ItemBytes + c.StoredShare*float64(size))}
}

// between is the cost, in ns, of a size on the line through two costs, and at least a tenth of the first.
func between(size, size1, size2 int, cost1, cost2 time.Duration) int64 {
	line := float64(cost1) + float64(cost2-cost1)*float64(size-size1)/float64(size2-size1)
	return int64(max(line, float64(cost1)/10))
}

// figures are the means of a workload.
type figures struct {
	perTurn     float64 // requests
	cpu         float64 // ns of a request
	modelBytes  float64 // of a model request
	resultBytes float64 // of a tool result
	keptShare   float64 // of tool calls
	keptPerTurn float64 // originals, of tool calls and of model requests
	storedBytes float64 // of an original
}

func (w *workload) figures() figures {
	var f figures
	models, calls, kept, keptCalls := 0., 0., 0., 0.
	for _, r := range w.requests {
		f.cpu += float64(r.cpu)
		kept += float64(r.kept)
		f.storedBytes += float64(r.kept * r.stored)
		if r.isModel {
			models++
			f.modelBytes += float64(r.bytes)
			continue
		}
		calls++
		keptCalls += float64(r.kept)
		f.resultBytes += float64(r.bytes)
	}
	f.cpu /= float64(len(w.requests))
	f.perTurn = float64(len(w.requests)) / float64(w.turns)
	f.modelBytes /= models
	f.resultBytes /= calls
	f.keptShare = keptCalls / calls
	f.keptPerTurn = kept / float64(w.turns)
	f.storedBytes /= kept
	return f
}
