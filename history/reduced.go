package history

import "github.com/ctxgate/ctxgate/jsonscan"

// Reduced tells that each result is sent shorter than it came, by so many bytes of its text, since
// the first request that had it. All that is planned then reckons with what is sent: what a request
// weighs, and what masking a result saves.
//
// How much shorter a result is must depend on nothing that comes after it, nor on whether it can be
// kept this time: then plans stay a replay of the conversation. It is told once, before any plan.
func (d *Dialogue) Reduced(less []int) {
	d.reduced = true
	total := 0
	for i := range d.Results {
		r := &d.Results[i]
		r.before -= total
		r.less = less[i]
		d.Messages[r.Message].Bytes -= less[i]
		total += less[i]
	}
}

// SaysFailed says whether a result is marked as an error.
func (r *Result) SaysFailed() bool { return r.marked }

// LooksFailed says whether a text of a result, as it stands in the request, looks like an error, by the
// narrower reading of H8: shortening new results is not the document's.
func LooksFailed(raw []byte) bool {
	return mayFail(raw) && failedText(jsonscan.AppendText(nil, raw))
}
