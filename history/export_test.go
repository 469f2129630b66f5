package history

import "github.com/ctxgate/ctxgate/jsonscan"

// Text is a result's decoded text, the original to store before masking. Blocks are joined by line breaks.
func (d *Dialogue) Text(result int) []byte {
	var out []byte
	for i, raw := range d.Results[result].Texts {
		if i > 0 {
			out = append(out, '\n')
		}
		out = jsonscan.AppendDecoded(out, raw.Of(d.body))
	}
	return out
}

// Edits returns the edits of cut i alone.
func (p *Plan) Edits(i int, id string) []jsonscan.Edit { return p.AppendEdits(nil, i, id) }
