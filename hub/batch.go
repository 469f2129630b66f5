package hub

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Several messages at once are a thing of one revision, 2025-03-26. In all others an array is no
// message.

// maxBatch is how many messages may come at once.
const maxBatch = 64

func isBatch(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && body[0] == '['
}

// postBatch serves the messages of an array beside each other and answers with an array.
func (h *Hub) postBatch(w http.ResponseWriter, r *http.Request, p *plan, body []byte) {
	reqs, replies, err := h.readBatch(w, r, p, body)
	if reqs.held != nil {
		defer h.sessions.release(reqs.held)
	}
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, sessionStatus(err), rpc.ID{}, err)
		return
	}
	for _, body := range replies {
		h.takeReply(reqs.held, body)
	}
	answers := h.serveBatch(context.WithoutCancel(r.Context()), reqs)
	if len(answers) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out, err := joinBatch(membudget.From(r.Context()), answers)
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, rpc.ID{}, err)
		return
	}
	newStream(w, r, p.HTTP).finish(http.StatusOK, reply{body: out})
}

// joinBatch is the array of the answers. It is a copy of all of them, which the scope holds, too.
func joinBatch(memory *membudget.Scope, answers [][]byte) ([]byte, error) {
	size := 1
	for _, a := range answers {
		size += len(a) + 1
	}
	if err := memory.Take(int64(size)); err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, size), '[')
	for i, a := range answers {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, a...)
	}
	return append(out, ']'), nil
}

// batch is the requests of one array, all of one session.
type batch struct {
	held *session
	reqs []*request
}

// readBatch reads the messages. Each must carry what one alone would have to.
func (h *Hub) readBatch(w http.ResponseWriter, r *http.Request, p *plan, body []byte) (b batch, replies [][]byte, err error) {
	scan := jsonscan.New(body, p.Hub.MaxDepth+1)
	if _, err := scan.SkipStrict(); err != nil || scan.End() != nil {
		return b, nil, fault.New(fault.Syntax, "not valid JSON")
	}
	n := 0
	err = jsonscan.Elements(body, jsonscan.Span{End: len(body)}, func(s jsonscan.Span) error {
		if n++; n > maxBatch {
			return fault.New(fault.Invalid, "invalid request: too many messages at once")
		}
		one, err := rpc.ParseRequest(s.Of(body), p.Hub.MaxDepth)
		isReply := errors.Is(err, rpc.ErrReply)
		if err != nil && !isReply {
			return err
		}
		params, err := mcp.ReadParams(one.Params)
		if err != nil {
			return fault.Wrap(fault.Invalid, "invalid request", err)
		}
		req := &request{Request: one, params: params, plan: p, only: r.PathValue("server"), era: mcp.EraLegacy}
		if req.who, err = h.identify(w, r, p, params); err != nil {
			return err
		}
		req.via = visitOf(r, req.who)
		if b.held == nil {
			b.held, err = h.sessionOf(r, req)
		} else if req.who.Tenant() != b.held.who.Tenant() || req.who.Subject() != b.held.who.Subject() {
			err = errNoSession
		}
		if err != nil {
			return err
		}
		if b.held.client.Version != mcp.V20250326 || one.Method == mcp.Initialize {
			return fault.New(fault.Invalid, "invalid request: the message must be one JSON object")
		}
		req.join(b.held)
		if isReply {
			replies = append(replies, s.Of(body))
			return nil
		}
		b.reqs = append(b.reqs, req)
		return nil
	})
	if err == nil && n == 0 {
		err = fault.New(fault.Invalid, "invalid request: no message")
	}
	return b, replies, err
}

func (h *Hub) serveBatch(ctx context.Context, b batch) [][]byte {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var answers [][]byte
	for _, req := range b.reqs {
		if req.IsNotification() {
			if h.admit(req.plan, req) == nil { // it has no reply to say so in
				h.heed(req)
			}
			continue
		}
		wg.Go(func() {
			ctx, done := b.held.begin(ctx, req.ID)
			defer done()
			req.peer = &waiter{hub: h, req: req, out: b.held}
			var answer []byte
			err := contained(func() (err error) {
				answer, err = h.serveMember(ctx, req)
				return err
			})
			if err != nil {
				answer = appendFailure(nil, req.ID, err)
			}
			mu.Lock()
			answers = append(answers, answer)
			mu.Unlock()
		})
	}
	wg.Wait()
	return answers
}

// serveMember is the whole answer to one request of a batch: a copy, which the request's scope holds.
func (h *Hub) serveMember(ctx context.Context, req *request) ([]byte, error) {
	out, err := h.serve(ctx, req)
	if err != nil {
		return nil, err
	}
	size := jsonscan.SplicedLen(out.body, out.edits)
	if err := membudget.From(ctx).Take(int64(size)); err != nil {
		return nil, err
	}
	return jsonscan.AppendSpliced(make([]byte, 0, size), out.body, out.edits), nil
}
