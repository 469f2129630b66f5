package hub

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
)

// recoverTool is the one tool of the gateway itself. It is always offered, so that lists do not
// change with what happens to be cut.
const recoverTool = "recover_text"

var recoverItem = []byte(`{"name":"` + recoverTool + `","title":"Read back text that was cut",` +
	`"description":"Gives back text that was cut from a tool result. Where a result says [recover: prune_id=prn_… chars=…], call this ` +
	`with that prune_id and those chars. Where it says ⟦PRUNÉ: prune_id=prn_… lignes A-B (N) …⟧, N lines were left out: call this with ` +
	`that prune_id and ranges from start_line A to end_line B. Without ranges, pattern or chars it gives the whole original; prefer a ` +
	`part of it.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"prune_id":{"type":"string","description":"The id in the recover line or the marker."},` +
	`"ranges":{"type":"array","description":"Lines to read, counted from 1, both ends included.","items":{"type":"object","properties":{` +
	`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},` +
	`"required":["start_line","end_line"],"additionalProperties":false}},` +
	`"pattern":{"type":"string","description":"Only lines that match this regular expression (RE2)."},` +
	`"chars":{"type":"string","description":"Characters to read, as first-last counted from 1, as the recover line has them."},` +
	`"include_line_numbers":{"type":"boolean","description":"Put the number before each line."}},` +
	`"required":["prune_id"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`)

// wish is what of an original is asked for.
type wish struct {
	id      string
	ranges  []recall.Range
	pattern *regexp.Regexp
	chars   *recall.Range
	number  bool
}

// recoverText reads an original back, for the tenant that it was kept for.
func (h *Hub) recoverText(ctx context.Context, req *request) (reply, error) {
	w, err := readWish(req.params)
	if err != nil {
		return reply{}, err
	}
	original, err := h.recall.Open(ctx, req.who.Tenant(), w.id)
	if fault.KindOf(err) == fault.Unknown {
		return reply{}, &protocolError{
			code: -32004, text: "prune_id_not_found: " + fault.PublicOf(err), data: []byte(`{"code":"prune_id_not_found"}`), status: 200,
		}
	}
	if err != nil {
		return reply{}, err
	}
	var text bytes.Buffer
	if err := original.WriteText(ctx, &text); err != nil {
		return reply{}, err
	}
	part, err := w.of(text.Bytes())
	if err != nil {
		return reply{}, err
	}
	dst := append([]byte(`{"content":[{"type":"text","text":`), jsonscan.AppendString(nil, string(part))...)
	dst = append(dst, `}],"isError":false`...)
	if req.era == mcp.EraModern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	return reply{body: rpc.AppendResult(nil, req.ID, append(dst, '}'))}, nil
}

// of is the part of a text that is wished for.
func (w wish) of(text []byte) ([]byte, error) {
	if w.chars != nil {
		from := skipText(text, w.chars.First-1)
		return text[from : from+skipText(text[from:], w.chars.Last-w.chars.First+1)], nil
	}
	var out bytes.Buffer
	switch {
	case w.pattern != nil:
		err := recall.WriteMatches(&out, text, w.pattern, w.ranges, w.number)
		return out.Bytes(), err
	case len(w.ranges) > 0 || w.number:
		ranges := w.ranges
		if len(ranges) == 0 {
			ranges = []recall.Range{{First: 1, Last: int(^uint(0) >> 1)}}
		}
		err := recall.WriteLines(&out, text, ranges, w.number)
		return out.Bytes(), err
	}
	return text, nil
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

func readWish(params mcp.Params) (w wish, err error) {
	raw, _ := params.Get("arguments")
	args, err := jsonscan.FieldsOf(raw)
	if err != nil || len(raw) == 0 {
		return w, invalidParams("arguments are missing")
	}
	for _, f := range args.All() {
		value, _ := args.Get(f.Key)
		switch f.Key {
		case "prune_id":
			w.id = jsonscan.TextOf(value)
		case "include_line_numbers":
			w.number = string(value) == "true"
		case "pattern":
			if p := jsonscan.TextOf(value); len(p) <= maxPattern {
				w.pattern, err = regexp.Compile(p)
			}
			if err != nil || w.pattern == nil {
				return w, invalidParams("pattern is no regular expression, or too long")
			}
		case "chars":
			ranges, err := recall.ParseRanges(jsonscan.TextOf(value))
			if err != nil || len(ranges) != 1 {
				return w, invalidParams("chars must be first-last, such as 2001-8000")
			}
			w.chars = &ranges[0]
		case "ranges":
			if w.ranges, err = readRanges(value); err != nil {
				return w, err
			}
		default:
			return w, invalidParams("there is no argument " + strconv.Quote(clip(f.Key)))
		}
	}
	if strings.TrimSpace(w.id) == "" {
		return w, invalidParams("prune_id is missing")
	}
	return w, nil
}

func readRanges(raw []byte) ([]recall.Range, error) {
	var out []recall.Range
	bad := &protocolError{code: -32005, text: "invalid_range: lines are counted from 1, and start_line is not after end_line",
		data: []byte(`{"code":"invalid_range"}`), status: 200}
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
			return bad
		}
		out = append(out, recall.Range{First: a, Last: b})
		return nil
	})
	if err != nil {
		return nil, bad
	}
	return out, nil
}
