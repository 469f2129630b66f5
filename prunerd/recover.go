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

// callRecover answers recover_text: lines of an original of the same tenant (P6).
func (s *Server) callRecover(ctx context.Context, tenant string, raw []byte) ([]byte, error) {
	want, err := parseReadRequest(raw)
	if err != nil {
		return nil, err
	}
	original, err := s.deps.Recall.OpenFor(ctx, tenant, want.ID, isPrunerOrigin)
	if err != nil {
		return nil, recoverError(ctx, err, want.ID)
	}
	for _, r := range want.Ranges {
		if r.First < 1 || r.Last < r.First {
			return nil, domainError(codeInvalidRange, "invalid_range", want.ID)
		}
	}
	var got recall.ReadResult
	if len(want.Ranges) > 0 { // without ranges, recall would read all of it
		got, err = original.Read(ctx, want, s.deps.Recall.ReadLimit(0))
	}
	if err != nil {
		return nil, recoverError(ctx, err, want.ID)
	}
	if err := membudget.FromContext(ctx).Reserve(resultSize(jsonscan.EscapedLen(got.Text), rangeSize*len(want.Ranges))); err != nil {
		return nil, recoverError(ctx, err, want.ID)
	}
	return toolResult(recoverDocument(original.ID, want, got)), nil
}

// isPrunerOrigin restricts recover_text to texts of the pruner; results of other servers are not its own.
func isPrunerOrigin(o recall.Origin) bool { return o.Server == Origin.Server }

// resultSize bounds the memory for making a reply, from the size of its quoted text and of the rest: a
// copy of the text, the document, the result that has the document twice, once quoted, and the message.
func resultSize(text, more int) int64 { return 7 * int64(text+more+512) }

// rangeSize bounds a range in the document.
const rangeSize = 64

// recoverError translates an error into the specification's codes.
func recoverError(ctx context.Context, err error, id string) error {
	switch fault.KindOf(err) { //nolint:exhaustive // all others are internal
	case fault.UnknownHandle:
		return domainError(codeNotFound, "prune_id_not_found", id)
	case fault.Full, fault.Canceled:
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	slog.WarnContext(ctx, "reading an original failed", "error", err)
	return domainError(codeInternal, "recovery_unavailable", id)
}

func parseReadRequest(raw []byte) (recall.ReadRequest, error) {
	a, err := parseArgs(raw, "", "prune_id", "ranges", "include_line_numbers")
	if err != nil {
		return recall.ReadRequest{}, err
	}
	w := recall.ReadRequest{ID: a.stringArg("prune_id"), LineNumbers: a.boolArg("include_line_numbers"), JoinLines: true}
	list := a.rawArg("ranges")
	if list[0] != '[' {
		a.reject("ranges", "must be an array")
	}
	if a.err != nil {
		return w, a.err
	}
	err = jsonscan.EachElement(list, jsonscan.Span{End: len(list)}, func(span jsonscan.Span) error {
		r, err := parseRange(span.Of(list), "ranges["+strconv.Itoa(len(w.Ranges))+"]")
		if err != nil {
			return err
		}
		w.Ranges = append(w.Ranges, r)
		if err := recall.CheckRangeCount(len(w.Ranges)); err != nil {
			return badArgument("ranges", fault.PublicOf(err))
		}
		return nil
	})
	return w, err
}

// parseRange reads two numbers. That they are a valid range is checked later, with another error code.
func parseRange(raw []byte, path string) (recall.Range, error) {
	a, err := parseArgs(raw, path, "start_line", "end_line")
	if err != nil {
		return recall.Range{}, err
	}
	var ends [2]int
	for i, key := range []string{"start_line", "end_line"} {
		n, ok := parseInteger(a.rawArg(key))
		if ends[i] = n; !ok {
			a.reject(key, "must be an integer")
		}
	}
	return recall.Range{First: ends[0], Last: ends[1]}, a.err
}

// recoverDocument writes the result. If the text was cut short, metadata says how to ask for the rest.
func recoverDocument(id string, want recall.ReadRequest, got recall.ReadResult) []byte {
	w := jsonWriter{b: make([]byte, 0, len(got.Text)+len(got.Text)/8+64*len(want.Ranges)+512)}
	w.beginObject()
	w.textMember("raw_text", string(got.Text))
	w.key("metadata")
	w.beginObject()
	w.textMember("prune_id", id)
	w.arrayMember("ranges", len(want.Ranges), func(i int) { writeRange(&w, want.Ranges[i]) })
	w.textMember("line_numbering", "original")
	if rest := got.Next; rest != nil {
		w.boolMember("truncated", true)
		if !rest.InsideLine {
			w.key("next_range")
			writeRange(&w, rest.NextLines)
		}
		w.textMember("note", rest.Hint(id))
	}
	w.endObject()
	w.endObject()
	return w.b
}

func writeRange(w *jsonWriter, r recall.Range) {
	w.beginObject()
	w.intMember("start_line", r.First)
	w.intMember("end_line", r.Last)
	w.endObject()
}
