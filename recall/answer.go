package recall

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// maxPattern is the longest regular expression that is tried on an original.
const maxPattern = 512

// ErrRange is a wish for lines that cannot be.
var ErrRange error = fault.New(fault.BadParams, "lines are counted from 1, and start_line is not after end_line")

// Wish is what a reader asks for: an original, or a part of it.
type Wish struct {
	ID string // of the original, as the reader spelled it

	ranges  []Range
	pattern *regexp.Regexp
	chars   *Range
	number  bool
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
		w.number = string(value) == "true"
	case "pattern":
		if p := jsonscan.TextOf(value); len(p) <= maxPattern {
			w.pattern, err = regexp.Compile(p)
		}
		if err != nil || w.pattern == nil {
			return badWish("pattern is no regular expression, or too long")
		}
	case "chars":
		ranges, err := ParseRanges(jsonscan.TextOf(value))
		if err != nil || len(ranges) != 1 {
			return badWish("chars must be first-last, such as 2001-8000")
		}
		w.chars = &ranges[0]
	case "ranges":
		w.ranges, err = readRanges(value)
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
		return nil
	})
	if err != nil {
		return nil, ErrRange
	}
	return out, nil
}

// Answer is what is wished for, of an original that was kept for the tenant and came from what its
// reader may call. An original that is not there is [ErrUnknown].
func (r *Recall) Answer(ctx context.Context, tenant string, w Wish, may Access) ([]byte, error) {
	original, err := r.OpenFor(ctx, tenant, w.ID, may)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := original.WriteText(ctx, &text); err != nil {
		return nil, err
	}
	return w.of(text.Bytes())
}

// of is the part of a text that is wished for.
func (w Wish) of(text []byte) ([]byte, error) {
	if w.chars != nil {
		from := skipText(text, w.chars.First-1)
		return text[from : from+skipText(text[from:], w.chars.Last-w.chars.First+1)], nil
	}
	var out bytes.Buffer
	switch {
	case w.pattern != nil:
		err := WriteMatches(&out, text, w.pattern, w.ranges, w.number)
		return out.Bytes(), err
	case len(w.ranges) > 0 || w.number:
		ranges := w.ranges
		if len(ranges) == 0 {
			ranges = []Range{{First: 1, Last: maxLine}}
		}
		err := WriteLines(&out, text, ranges, w.number)
		return out.Bytes(), err
	}
	return text, nil
}

// Fit cuts an answer to the wish to so many characters, the last of which say how to ask for the
// rest. An answer that fits stays as it is.
func (w Wish) Fit(answer []byte, chars int) []byte {
	if len(answer) <= chars || utf8.RuneCount(answer) <= chars {
		return answer
	}
	all := utf8.RuneCount(answer)
	left := max(1, chars-len(w.advice(all, all)))
	end := skipText(answer, left)
	return append(answer[:end:end], w.advice(left, all)...)
}

// advice is the line after the first left of all characters of an answer.
func (w Wish) advice(left, all int) string {
	before := 0
	switch {
	case w.chars != nil:
		before = w.chars.First - 1
	case w.pattern != nil || len(w.ranges) > 0 || w.number: // characters of the answer are none of the original
		return fmt.Sprintf("\n[cut after %d of %d characters: ask for fewer lines, or with chars=first-last]", left, all)
	}
	return fmt.Sprintf("\n[cut after %d of %d characters: ask for the rest with prune_id=%s chars=%d-%d]",
		left, all, strings.TrimSpace(w.ID), before+left+1, before+all)
}

// skipText is where the first n characters of a text end.
func skipText(text []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at
}

// clip bounds a text that somebody else chose.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
