package rounds

import (
	"encoding/binary"
	"errors"

	"github.com/ctxgate/ctxgate/history"
)

// Record is what a client was not shown of a reply: the rounds in which the model read back, and
// what it was answered. It is kept where only the client's tenant finds it, under the reply's place
// in its conversation, before anything of the next round is shown.
type Record struct {
	Steps []Step
	// Reply names the reply, hidden calls left out. It is known when all of it was said; until then
	// it is zero.
	Reply history.Sum
}

// Step is one round.
type Step struct {
	Said    []byte // as [Round.Said]
	Answers []Answer
	Mixed   bool     // the client answers calls of this round too: it is the last
	Others  []string // the ids of those
}

// Add adds a round and what its calls were answered with.
func (rec *Record) Add(r *Round, answers []Answer) {
	rec.Steps = append(rec.Steps, Step{Said: r.Said, Answers: answers, Mixed: r.Mixed, Others: r.Others})
}

const recordVersion = 1

// Encode writes the record down: its version, the reply's name, the rounds.
func (rec *Record) Encode() []byte {
	w := append(pen{recordVersion}, rec.Reply[:]...)
	for _, s := range rec.Steps {
		w.flag(s.Mixed)
		w.text(string(s.Said))
		w.number(len(s.Others))
		for _, id := range s.Others {
			w.text(id)
		}
		w.number(len(s.Answers))
		for _, a := range s.Answers {
			w.text(a.ID)
			w.flag(a.Failed)
			w.text(a.Text)
		}
	}
	return w
}

type pen []byte

func (w *pen) number(n int) { *w = binary.AppendUvarint(*w, uint64(n)) }

func (w *pen) text(s string) {
	w.number(len(s))
	*w = append(*w, s...)
}

func (w *pen) flag(is bool) {
	if is {
		w.number(1)
		return
	}
	w.number(0)
}

var errRecord = errors.New("a record of rounds cannot be read")

// DecodeRecord reads what Encode wrote.
func DecodeRecord(raw []byte) (*Record, error) {
	const head = 1 + len(history.Sum{})
	if len(raw) < head || raw[0] != recordVersion {
		return nil, errRecord
	}
	rec, r := &Record{Reply: history.Sum(raw[1:head])}, eye{raw: raw[head:]}
	for len(r.raw) > 0 && !r.failed {
		s := Step{Mixed: r.flag(), Said: []byte(r.text())}
		for range r.count() {
			s.Others = append(s.Others, r.text())
		}
		for range r.count() {
			s.Answers = append(s.Answers, Answer{ID: r.text(), Failed: r.flag(), Text: r.text()})
		}
		rec.Steps = append(rec.Steps, s)
	}
	if r.failed {
		return nil, errRecord
	}
	return rec, nil
}

type eye struct {
	raw    []byte
	failed bool
}

func (r *eye) number() int {
	n, size := binary.Uvarint(r.raw)
	if size <= 0 || n > 1<<31-1 {
		r.raw, r.failed = nil, true
		return 0
	}
	r.raw = r.raw[size:]
	return int(n)
}

// count is how many of something follow, each of which takes a byte at least.
func (r *eye) count() int {
	n := r.number()
	if n > len(r.raw) {
		r.raw, r.failed = nil, true
		return 0
	}
	return n
}

func (r *eye) flag() bool { return r.number() == 1 }

func (r *eye) text() string {
	n := r.count()
	text := string(r.raw[:n])
	r.raw = r.raw[n:]
	return text
}
