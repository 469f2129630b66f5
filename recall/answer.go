package recall

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// ErrRange is a wish for lines that cannot be.
var ErrRange error = fault.New(fault.BadParams, "lines are counted from 1, and start_line is not after end_line")

// Wish is what a reader asks for: an original, or a part of it.
type Wish struct {
	ID      string              // of the original, as the reader spelled it
	Ranges  []Range             // lines, in this order; each is given once, where it is first asked for
	Pattern *linesearch.Pattern // only lines that match, within Ranges when there are any, in the order of the text
	Chars   *Range              // characters instead of lines, counted from 1
	Number  bool                // put its number before each line
	Joined  bool                // lines are parted by line breaks, instead of each ended by one
}

// ReadWish reads the arguments of the tool that reads back: prune_id, and of ranges, pattern, chars
// and include_line_numbers those that are there. What cannot be is [ErrRange], or another error of
// kind BadParams.
func ReadWish(args []byte) (w Wish, err error) {
	s := jsonscan.New(args, 0) // a model may have written anything
	if _, err = s.Skip(); err == nil {
		err = s.End()
	}
	var fields jsonscan.Fields
	if err == nil {
		fields, err = jsonscan.FieldsOf(args)
	}
	if err != nil {
		return w, badWish("arguments are missing, or no JSON object")
	}
	for _, f := range fields.All() {
		value := f.Value.Of(args)
		if string(value) == "null" { // so some models leave an argument out
			continue
		}
		if err := w.take(f.Key, value); err != nil {
			return w, err
		}
	}
	if strings.TrimSpace(w.ID) == "" {
		return w, badWish("prune_id is missing")
	}
	return w, nil
}

func badWish(text string) error { return fault.New(fault.BadParams, text) }

// take reads one argument.
func (w *Wish) take(key string, value []byte) (err error) {
	switch key {
	case "prune_id":
		w.ID = jsonscan.TextOf(value)
	case "include_line_numbers":
		w.Number = string(value) == "true"
	case "pattern":
		w.Pattern, err = linesearch.Compile(jsonscan.TextOf(value))
		return err
	case "chars":
		ranges, err := ParseRanges(jsonscan.TextOf(value))
		if err != nil || len(ranges) != 1 {
			return badWish("chars must be first-last, such as 2001-8000")
		}
		w.Chars = &ranges[0]
	case "ranges":
		w.Ranges, err = readRanges(value)
		return err
	default:
		return badWish("there is no argument " + strconv.Quote(clip(key)))
	}
	return nil
}

func readRanges(raw []byte) ([]Range, error) {
	var out []Range
	err := jsonscan.Elements(raw, jsonscan.Span{End: len(raw)}, func(s jsonscan.Span) error {
		f, err := jsonscan.ReadFields(raw, s)
		if err != nil {
			return err
		}
		first, _ := f.Get("start_line")
		last, _ := f.Get("end_line")
		a, errA := strconv.Atoi(string(first))
		b, errB := strconv.Atoi(string(last))
		if errA != nil || errB != nil || a < 1 || b < a {
			return ErrRange
		}
		out = append(out, Range{First: a, Last: b})
		return CheckRanges(len(out))
	})
	if errors.Is(err, errRanges) {
		return nil, err
	}
	if err != nil {
		return nil, ErrRange
	}
	return out, nil
}

var errRanges = fault.New(fault.BadParams, "ranges: at most "+strconv.Itoa(maxRanges)+" in one call; join them, or ask again for the rest")

// CheckRanges says whether so many ranges may be asked for in one call; if not, the error is of kind
// BadParams.
func CheckRanges(n int) error {
	if n > maxRanges {
		return errRanges
	}
	return nil
}

// Answer is what is wished for, of an original that was kept for the tenant and came from what its
// reader may call, with a line at its end where that is not all. chars is the most characters that it may have; 0 for the configured limit
// alone. An original that is not there is [ErrUnknown].
func (r *Recall) Answer(ctx context.Context, tenant string, w Wish, may Access, chars int) ([]byte, error) {
	original, err := r.OpenFor(ctx, tenant, w.ID, may)
	if err != nil {
		return nil, err
	}
	got, err := original.Read(ctx, w, r.Limit(chars))
	if err != nil {
		return nil, err
	}
	return got.Noted(original.ID), nil
}

// clip bounds a text that somebody else chose.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
