package redact

import (
	"context"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Arguments returns the edits that redact the arguments of a call, a JSON object. A nil Set takes nothing out.
func (s *Set) Arguments(ctx context.Context, raw []byte) ([]jsonscan.Edit, error) {
	if s == nil || len(s.arguments)+len(s.patterns) == 0 {
		return nil, nil
	}
	return s.withMemory(ctx, raw, func() ([]jsonscan.Edit, error) {
		w := newWalk(s, raw)
		err := w.visitDocument(s.arguments)
		return w.edits, err
	})
}

// Message returns the edits that redact a message of a server: a reply, a notification or a request. A nil Set takes
// nothing out.
func (s *Set) Message(ctx context.Context, body []byte) ([]jsonscan.Edit, error) {
	if s == nil || len(s.results)+len(s.patterns) == 0 {
		return nil, nil
	}
	return s.withMemory(ctx, body, func() ([]jsonscan.Edit, error) { return s.redactMessage(body) })
}

func (s *Set) redactMessage(body []byte) ([]jsonscan.Edit, error) {
	top, err := jsonscan.FieldsOf(body)
	if err != nil {
		return nil, err
	}
	w := newWalk(s, body)
	for _, f := range top.All() {
		w.Scanner = jsonscan.NewAt(body, f.Value.Start, 1, 0)
		switch f.Key {
		case "result":
			w.taken, w.inTexts = s.takenFrom(f.Value.Of(body)), s.inTexts
			err = w.visitValue(s.results)
			w.taken, w.inTexts = literals{}, nil
		case "error":
			err = w.visitValue(nil)
		case "params":
			err = w.visitParams()
		}
		if err != nil {
			return nil, err
		}
	}
	return w.edits, nil
}

// Reply returns a message of a server without what is taken out: the message itself if that is nothing, otherwise a
// copy, whose memory is reserved for the request of ctx.
func (s *Set) Reply(ctx context.Context, body []byte) ([]byte, error) {
	edits, err := s.Message(ctx, body)
	if err != nil || len(edits) == 0 {
		return body, err
	}
	n := jsonscan.SplicedLen(body, edits)
	if err := membudget.FromContext(ctx).Reserve(int64(n)); err != nil {
		return nil, err
	}
	return jsonscan.AppendSpliced(make([]byte, 0, n), body, edits), nil
}

// Text returns a text without what patterns take out.
func (s *Set) Text(text string) string {
	if s == nil {
		return text
	}
	out, _ := newWalk(s, nil).redactText([]byte(text))
	return string(out)
}

// withMemory redacts a document with the memory that it takes reserved: each text is held decoded, and changed.
func (s *Set) withMemory(ctx context.Context, data []byte, redact func() ([]jsonscan.Edit, error)) ([]jsonscan.Edit, error) {
	scope, n := membudget.FromContext(ctx), 2*int64(len(data))
	if err := scope.Reserve(n); err != nil {
		return nil, err
	}
	defer scope.Free(n)
	edits, err := redact()
	if err != nil {
		return nil, fault.Wrap(fault.BadReply, "what the access rules take out cannot be found", err)
	}
	return edits, nil
}
