package prunerd

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// recover gives lines of an original back, for the tenant that it was kept for (P6).
func (s *Server) recover(ctx context.Context, tenant string, raw []byte) ([]byte, error) {
	want, err := readWish(raw)
	if err != nil {
		return nil, err
	}
	original, err := s.deps.Recall.OpenFor(ctx, tenant, want.ID, isOwn)
	if err != nil {
		return nil, unread(ctx, err, want.ID)
	}
	for _, r := range want.Ranges {
		if r.First < 1 || r.Last < r.First {
			return nil, domain(codeInvalidRange, "invalid_range", want.ID)
		}
	}
	var got recall.Reading
	if len(want.Ranges) > 0 { // without any, recall reads all of it
		got, err = original.Read(ctx, want, s.deps.Recall.Limit(0))
	}
	if err != nil {
		return nil, unread(ctx, err, want.ID)
	}
	if err := membudget.From(ctx).Take(resultSize(jsonscan.RawLen(got.Text), rangeSize*len(want.Ranges))); err != nil {
		return nil, unread(ctx, err, want.ID)
	}
	return toolResult(recovered(original.ID, want, got)), nil
}

// isOwn says whether a text came from the pruner: what other servers' results made is not its own.
func isOwn(o recall.Origin) bool { return o.Server == Origin.Server }

// resultSize is how much memory a reply takes while it is made, or a little more, by the size of the
// quoted text in it and of what else it says: a copy of the text, the document, the result that has
// the document twice, once quoted, and the reply around that.
func resultSize(text, more int) int64 { return 7 * int64(text+more+512) }

// rangeSize is the most that a range takes in a document.
const rangeSize = 64

// unread is why an original cannot be read, in the words of the document.
func unread(ctx context.Context, err error, id string) error {
	switch fault.KindOf(err) { //nolint:exhaustive // the others are all failures of ours
	case fault.Unknown:
		return domain(codeNotFound, "prune_id_not_found", id)
	case fault.Full, fault.Canceled:
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	slog.WarnContext(ctx, "an original could not be read", "error", err)
	return domain(codeInternal, "recovery_unavailable", id)
}

func readWish(raw []byte) (recall.Wish, error) {
	a, err := readArgs(raw, "", "prune_id", "ranges", "include_line_numbers")
	if err != nil {
		return recall.Wish{}, err
	}
	w := recall.Wish{ID: a.text("prune_id"), Number: a.flag("include_line_numbers"), Joined: true}
	list := a.raw("ranges")
	if list[0] != '[' {
		a.refuse("ranges", "must be an array")
	}
	if a.err != nil {
		return w, a.err
	}
	err = jsonscan.Elements(list, jsonscan.Span{End: len(list)}, func(span jsonscan.Span) error {
		r, err := readRange(span.Of(list), "ranges["+strconv.Itoa(len(w.Ranges))+"]")
		if err != nil {
			return err
		}
		w.Ranges = append(w.Ranges, r)
		if err := recall.CheckRanges(len(w.Ranges)); err != nil {
			return badArgument("ranges", fault.PublicOf(err))
		}
		return nil
	})
	return w, err
}

// readRange reads two numbers. Whether they are a range is another question, with another answer.
func readRange(raw []byte, path string) (recall.Range, error) {
	a, err := readArgs(raw, path, "start_line", "end_line")
	if err != nil {
		return recall.Range{}, err
	}
	var ends [2]int
	for i, key := range []string{"start_line", "end_line"} {
		n, ok := integer(a.raw(key))
		if ends[i] = n; !ok {
			a.refuse(key, "must be an integer")
		}
	}
	return recall.Range{First: ends[0], Last: ends[1]}, a.err
}

// recovered is the document. Where the text does not have all that was asked for, metadata says so,
// and how to ask for the rest.
func recovered(id string, want recall.Wish, got recall.Reading) []byte {
	w := writer{b: make([]byte, 0, len(got.Text)+len(got.Text)/8+64*len(want.Ranges)+512)}
	w.open()
	w.text("raw_text", string(got.Text))
	w.key("metadata")
	w.open()
	w.text("prune_id", id)
	w.list("ranges", len(want.Ranges), func(i int) { writeRange(&w, want.Ranges[i]) })
	w.text("line_numbering", "original")
	if rest := got.Rest; rest != nil {
		w.flag("truncated", true)
		if !rest.Inside {
			w.key("next_range")
			writeRange(&w, rest.Lines)
		}
		w.text("note", rest.Note(id))
	}
	w.close()
	w.close()
	return w.b
}

func writeRange(w *writer, r recall.Range) {
	w.open()
	w.int("start_line", r.First)
	w.int("end_line", r.Last)
	w.close()
}
