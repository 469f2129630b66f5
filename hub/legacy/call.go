package legacy

import (
	"context"
	"errors"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// maxInputRounds is how often a server may ask for input before it answers one request.
const maxInputRounds = 32

// Call makes the calls whose client and server may speak different revisions. A modern server asks for input in its
// reply: a legacy client is sent requests instead. A legacy server sends requests during a call: a modern client gets
// them as a reply, and the call is pending until it comes back with the input.
func (e *endpoint) Call(ctx context.Context, req *hub.Request, to hub.Target, conn *upstream.ManagedConn, release func()) (_ hub.Reply, made bool, _ error) {
	hello, up := conn.Handshake()
	switch {
	case req.Protocol == mcp.Legacy:
		defer release()
		m, err := e.callWithInput(ctx, req, to, conn)
		if err != nil {
			return hub.Reply{}, true, err
		}
		out, err := e.hub.FinishCall(ctx, req, to, m)
		return out, true, err
	case hasForeignState(req, conn):
		release()
		return hub.Reply{}, true, errState
	case (!up || hello.Protocol == mcp.Legacy) && mcp.CanRequireInput(req.Method) && req.Client.SupportsInput() && req.Peer != nil:
		out, err := e.callPending(ctx, req, to, conn, release)
		return out, true, err
	}
	return hub.Reply{}, false, nil
}

// callWithInput makes the upstream call of a legacy client, again and again while a modern server asks for input.
func (e *endpoint) callWithInput(ctx context.Context, req *hub.Request, to hub.Target, conn *upstream.ManagedConn) (rpc.Message, error) {
	var input []jsonscan.Change
	for range maxInputRounds {
		m, err := e.hub.CallUpstream(ctx, req, to, conn, input...)
		if err != nil {
			return m, err
		}
		res, err := mcp.ParseResult(m)
		if err != nil {
			return m, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
		}
		if !res.NeedsInput() {
			return m, nil
		}
		responses, err := requestInput(ctx, req, conn.ServerID(), res)
		if err != nil {
			return m, err
		}
		state, _ := res.Get("requestState")
		input = []jsonscan.Change{{Key: "inputResponses", Value: responses}, {Key: "requestState", Value: state}}
	}
	return rpc.Message{}, fault.New(fault.BadReply, "the server asks for input without end")
}

// requestInput sends a server's requests for input to the client, one after the other, and returns the responses.
func requestInput(ctx context.Context, req *hub.Request, server string, res mcp.Result) ([]byte, error) {
	inputs, err := res.InputRequests()
	if err != nil {
		return nil, fault.Wrap(fault.BadReply, "the server's request for input cannot be read", err)
	}
	responses := []byte{'{'}
	for i, in := range inputs {
		if i > 0 {
			responses = append(responses, ',')
		}
		body := append([]byte(`{"jsonrpc":"2.0","id":0,"method":`), mcp.Quote(in.Method)...)
		if len(in.Params) > 0 {
			body = append(append(body, `,"params":`...), in.Params...)
		}
		question, err := rpc.ParseMessage(append(body, '}'), 0, 0)
		if err != nil || req.Peer == nil || !mcp.IsServerToClient(in.Method) {
			return nil, fault.New(fault.BadReply, "the server asks for what no client gives")
		}
		began := time.Now()
		got, err := req.Peer.Request(ctx, server, question)
		upstream.LogServerRequest(server, in.Method, time.Since(began), upstream.ServerRequestCode(got, err), err)
		switch {
		case errors.Is(err, hub.ErrCannotAsk):
			return nil, fault.Wrap(fault.BadReply, "the server asks for what the client does not offer", err)
		case err != nil:
			return nil, err
		case got.IsError:
			return nil, fault.New(fault.BadReply, "the client refused what the server asked for")
		}
		responses = append(append(jsonscan.AppendQuoted(responses, in.Key), ':'), got.Result.Of(got.Body)...)
	}
	return append(responses, '}'), nil
}
