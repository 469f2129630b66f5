package history

import (
	"bytes"

	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// RecoveryToolTokens estimates the definitions of the gateway's recover_text in the request: without cuts it
// would not be offered.
func (d *Dialogue) RecoveryToolTokens() int {
	if !bytes.Contains(d.tools.Of(d.body), []byte(recovertool.Name)) {
		return 0
	}
	size := 0
	d.eachTool(func(tool jsonscan.Span) {
		if recovertool.IsName(d.Codec.ToolName(d.body, tool)) && bytes.Contains(tool.Of(d.body), []byte("prune_id")) {
			size += tool.Len()
		}
	})
	return Tokens(size)
}

// ModelBytes is the size of what the model said in a tool turn, calls and thinking included.
func (d *Dialogue) ModelBytes(turn int) int {
	first := 0
	if turn > 0 {
		first = d.Turns[turn-1].End
	}
	size := 0
	for i := first; i < d.Turns[turn].End; i++ {
		m := &d.Messages[i]
		if !m.spoken || m.byUser {
			continue
		}
		size += m.total + m.volatileTotal
		if i > 0 {
			size -= d.Messages[i-1].total + d.Messages[i-1].volatileTotal
		}
	}
	return size
}
