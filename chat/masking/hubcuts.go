package masking

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/recovertool"
)

// hubCut is a result that the MCP endpoint had cut before the client sent it.
type hubCut struct {
	result int
	tokens int // that it would have had more, estimated
}

// findHubCuts finds the results that the MCP endpoint cut. Every request that carries one is smaller by what was
// cut. If the store cannot answer, they count as whole this time.
func (m *Masker) findHubCuts(ctx context.Context, o Request, dialogue *history.Dialogue) (cuts []hubCut) {
	var storeErr error
	for i := range dialogue.Results {
		r := &dialogue.Results[i]
		if r.Turn < 0 || recovertool.IsName(r.Name) {
			continue
		}
		if !r.Omitted.IsKnown && storeErr == nil {
			omitted := history.Omitted{IsKnown: true}
			for _, span := range r.Texts {
				n, err := m.recall.OmittedBytes(ctx, o.Tenant, span.Of(o.Body))
				omitted.Bytes += n
				storeErr = cmp.Or(storeErr, err)
			}
			if storeErr == nil {
				r.Omitted = omitted // until the conversation is forgotten
			}
		}
		if r.Omitted.Bytes > 0 {
			cuts = append(cuts, hubCut{i, history.Tokens(r.Omitted.Bytes)})
		}
	}
	if storeErr != nil {
		slog.WarnContext(ctx, "the ledger does not count what the MCP endpoint cut from this request: the store cannot tell", "error", storeErr)
	}
	return cuts
}

// addHubCuts adds what the MCP endpoint cut. The request is then described as it would have come without that.
func (s *Result) addHubCuts(dialogue *history.Dialogue, cuts []hubCut) {
	for _, c := range cuts {
		r := &dialogue.Results[c.result]
		isNew := r.Turn >= s.lastTurns
		s.Cuts = addCut(s.Cuts, ToolCut{Tool: r.Name, Results: 1, Tokens: c.tokens, NeverSent: true, IsNew: isNew, AtHub: true})
		s.OriginalTokens += c.tokens
		s.ReadTokens += c.tokens
		if !isNew && s.PreviousTokens > 0 {
			s.PreviousTokens += c.tokens
		}
	}
}
