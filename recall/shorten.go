package recall

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Draft is a text that is shown again and again, as a conversation shows the results of its tools,
// and how it is to be shortened.
type Draft struct {
	Tenant string
	Raw    []byte // the inside of a JSON string
	Policy Policy
	Focus  *Focus // what is looked for in it; nil when nobody said

	// ByLines says that a text stays whole from which no lines can be left out for Focus.
	ByLines bool
}

// Shorten gives the edits that shorten a draft, of d.Raw; none when it stays whole. They are what
// [Recall.Shrink] would make, but nothing is kept: they may be shown only once [Recall.KeepAll] has
// kept the text.
//
// The same draft has the same edits at all times and everywhere: they depend on no clock, so that a
// text is shown with the same bytes whenever it is shown again. How much work is done is decided by
// the size of the text alone. A text that was made here stays whole, for as long as the store
// remembers that; it does while the text is shown. An error means that the store could not tell, that
// ctx ended, or a mistake of ours.
func (r *Recall) Shorten(ctx context.Context, d Draft) (edits []jsonscan.Edit, err error) {
	defer func() {
		if p := recover(); p != nil {
			edits, err = nil, fmt.Errorf("shortening panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if len(d.Raw) <= d.Policy.MaxChars {
		return nil, nil
	}
	if r.cfg.Enabled {
		if ours, err := r.isOurs(ctx, r.keysOf(d.Tenant), jsonscan.Texts(d.Raw, partSize)); ours || err != nil {
			return nil, err
		}
	}
	c, ok := d.cut(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err // then a text is masked that is else read
	}
	if !ok || d.ByLines && c.bare == nil {
		return nil, nil
	}
	id := ""
	if d.Policy.RecoverLine || c.bare != nil {
		id = formatID(hash128(r.keysOf(d.Tenant).id, c.parts[0].text(d.Raw)))
	}
	edits = c.edits(id)
	if jsonscan.SplicedLen(d.Raw, edits) >= len(d.Raw) {
		return nil, nil
	}
	return edits, nil
}

func (d Draft) cut(ctx context.Context) (c cut, ok bool) {
	str := jsonscan.Str{Span: jsonscan.Span{End: len(d.Raw)}, Chars: jsonscan.CountChars(d.Raw)}
	if str.Chars <= d.Policy.MaxChars {
		return cut{}, false
	}
	doc := Doc{Body: d.Raw, Focus: d.Focus}
	cutter := d.Policy.masker(doc)
	if d.Focus != nil {
		cutter = d.Policy.byLines(ctx, doc)
	}
	if !d.Policy.JSON {
		return cutter(str)
	}
	c, _, ok = d.Policy.thin(d.Raw, str, cutter)
	return c, ok
}
