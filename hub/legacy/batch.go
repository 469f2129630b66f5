package legacy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// maxBatch is how many messages an array may have. Only revision 2025-03-26 has arrays of messages.
const maxBatch = 64

// batch is the messages of one array, all of one session.
type batch struct {
	session *session
	reqs    []*hub.Request
	replies [][]byte
}

// ServeBatch serves the messages of an array concurrently and answers with an array.
func (e *endpoint) ServeBatch(w http.ResponseWriter, r *http.Request, p *hub.Plan, body []byte) {
	b, err := e.readBatch(w, r, p, body)
	if elsewhere, ok := errors.AsType[*elsewhereError](err); ok {
		var forwarded bool
		if b.session, forwarded, err = e.sessionHere(w, r, elsewhere.req, body); forwarded {
			return
		}
		if err == nil { // this replica has taken it over
			e.sessions.release(b.session)
			b, err = e.readBatch(w, r, p, body)
		}
	}
	if b.session != nil {
		defer e.sessions.release(b.session)
	}
	if err != nil {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, sessionStatus(err), rpc.ID{}, err)
		return
	}
	for _, body := range b.replies {
		b.session.TakeReply(body)
	}
	answers := e.serveAll(context.WithoutCancel(r.Context()), b)
	if len(answers) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out, err := joinAnswers(membudget.FromContext(r.Context()), answers)
	if err != nil {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, 0, rpc.ID{}, err)
		return
	}
	hub.NewStream(w, r, p.HTTP).Finish(http.StatusOK, hub.Reply{Body: out})
}

// joinAnswers returns the array of the answers: a copy of all of them, which the memory scope holds.
func joinAnswers(memory *membudget.Scope, answers [][]byte) ([]byte, error) {
	size := 1
	for _, a := range answers {
		size += len(a) + 1
	}
	if err := memory.Reserve(int64(size)); err != nil {
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

// readBatch reads the messages. Each must carry what one alone would have to.
func (e *endpoint) readBatch(w http.ResponseWriter, r *http.Request, p *hub.Plan, body []byte) (b batch, err error) {
	scan := jsonscan.New(body, p.Hub.MaxDepth+1)
	if _, err := scan.SkipStrict(); err != nil || scan.End() != nil {
		return b, fault.New(fault.Syntax, "not valid JSON")
	}
	n := 0
	err = jsonscan.EachElement(body, jsonscan.Span{End: len(body)}, func(s jsonscan.Span) error {
		if n++; n > maxBatch {
			return fault.New(fault.InvalidRequest, "invalid request: too many messages at once")
		}
		message, err := rpc.ParseRequest(s.Of(body), p.Hub.MaxDepth)
		isReply := errors.Is(err, rpc.ErrUnexpectedReply)
		if err != nil && !isReply {
			return err
		}
		params, err := mcp.ParseParams(message.Params)
		if err != nil {
			return fault.Wrap(fault.InvalidRequest, "invalid request", err)
		}
		caller, err := e.hub.Authenticate(w, r, p, params)
		if err != nil {
			return err
		}
		req := hub.NewHTTPRequest(r, p, caller)
		req.Request, req.Params, req.Protocol = message, params, mcp.Legacy
		if b.session == nil {
			b.session, err = e.sessionOf(r, req)
		} else if caller.Key() != b.session.caller.Key() {
			err = errNoSession
		}
		if err != nil {
			return err
		}
		if b.session.client.Version != mcp.V20250326 || message.Method == mcp.Initialize {
			return fault.New(fault.InvalidRequest, "invalid request: the message must be one JSON object")
		}
		b.session.join(req)
		if isReply {
			b.replies = append(b.replies, s.Of(body))
		} else {
			b.reqs = append(b.reqs, req)
		}
		return nil
	})
	if err == nil && n == 0 {
		err = fault.New(fault.InvalidRequest, "invalid request: no message")
	}
	return b, err
}

// serveAll serves the requests of a batch concurrently and returns their answers.
func (e *endpoint) serveAll(ctx context.Context, b batch) [][]byte {
	var wg sync.WaitGroup
	answers := make([][]byte, len(b.reqs))
	for i, req := range b.reqs {
		if req.IsNotification() {
			if e.hub.Admit(req) == nil { // it has no reply for an error
				e.takeNotification(b.session, req)
			}
			continue
		}
		wg.Go(func() {
			ctx, done := b.session.inFlight.Begin(ctx, req.ID)
			defer done()
			req.Peer = b.session.callPeer(req, b.session)
			err := hub.Contain(func() (err error) {
				answers[i], err = e.serveOne(ctx, req)
				return err
			})
			if err != nil {
				answers[i] = hub.AppendFailure(nil, req.ID, err)
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(answers, func(a []byte) bool { return a == nil })
}

// serveOne returns the whole answer to one request: a copy, which the request's memory scope holds.
func (e *endpoint) serveOne(ctx context.Context, req *hub.Request) ([]byte, error) {
	out, err := e.hub.Serve(ctx, req)
	if err != nil {
		return nil, err
	}
	size := jsonscan.SplicedLen(out.Body, out.Edits)
	if err := membudget.FromContext(ctx).Reserve(int64(size)); err != nil {
		return nil, err
	}
	return jsonscan.AppendSpliced(make([]byte, 0, size), out.Body, out.Edits), nil
}
