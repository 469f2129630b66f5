package prunerd

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// maxRecover is the most that one call may ask for, line breaks counted and numbers not; more only
// where the original itself is larger. Ranges may overlap, so that a short request could ask for
// any amount.
const maxRecover = 64 << 20

// wish is one call of recover_text.
type wish struct {
	id     string
	ranges []recall.Range
	number bool
}

// recover gives lines of an original back, for the tenant that it was kept for (P6).
func (s *Server) recover(ctx context.Context, tenant string, raw []byte) ([]byte, error) {
	want, err := readWish(raw)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	original, err := s.deps.Recall.OpenFor(ctx, tenant, want.id, isOwn)
	if err == nil {
		err = original.WriteText(ctx, &text)
	}
	switch {
	case fault.KindOf(err) == fault.Unknown && err != nil:
		return nil, domain(codeNotFound, "prune_id_not_found", want.id)
	case err != nil:
		slog.WarnContext(ctx, "an original could not be read", "error", err)
		return nil, domain(codeInternal, "recovery_unavailable", want.id)
	}
	for _, r := range want.ranges {
		if r.First < 1 || r.Last < r.First {
			return nil, domain(codeInvalidRange, "invalid_range", want.id)
		}
	}
	lines, err := want.of(text.Bytes())
	if err != nil {
		return nil, err
	}
	return toolResult(recovered(original.ID, want, lines)), nil
}

// isOwn says whether a text came from the pruner: what other servers' results made is not its own.
func isOwn(o recall.Origin) bool { return o.Server == Origin.Server }

func readWish(raw []byte) (*wish, error) {
	a, err := readArgs(raw, "", "prune_id", "ranges", "include_line_numbers")
	if err != nil {
		return nil, err
	}
	w := &wish{id: a.text("prune_id"), number: a.flag("include_line_numbers")}
	list := a.raw("ranges")
	if list[0] != '[' {
		a.refuse("ranges", "must be an array")
	}
	if a.err != nil {
		return nil, a.err
	}
	err = jsonscan.Elements(list, jsonscan.Span{End: len(list)}, func(span jsonscan.Span) error {
		r, err := readRange(span.Of(list), "ranges["+strconv.Itoa(len(w.ranges))+"]")
		w.ranges = append(w.ranges, r)
		return err
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

// of are the lines wished for, parted by line breaks.
func (w *wish) of(text []byte) ([]byte, error) {
	lines := recall.Split(text)
	size := 0
	for _, r := range w.ranges {
		if size += lines.Size(r); size > max(maxRecover, len(text)+1) {
			return nil, badArgument("ranges", "ask for more than can be given at once")
		}
	}
	out := make([]byte, 0, size)
	for _, r := range w.ranges {
		out = lines.Append(out, r, w.number)
	}
	return bytes.TrimSuffix(out, []byte("\n")), nil
}

func recovered(id string, want *wish, lines []byte) []byte {
	var w writer
	w.open()
	w.text("raw_text", string(lines))
	w.key("metadata")
	w.open()
	w.text("prune_id", id)
	w.list("ranges", len(want.ranges), func(i int) {
		w.open()
		w.int("start_line", want.ranges[i].First)
		w.int("end_line", want.ranges[i].Last)
		w.close()
	})
	w.text("line_numbering", "original")
	w.close()
	w.close()
	return w.b
}
