package hub

import (
	"context"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// Legacy serves the protocol revisions that begin with initialize, up to 2025-11-25: their clients, and what
// modern clients need to call their servers. Package hub/legacy implements it; without it those
// revisions are refused.
type Legacy interface {
	// Versions lists the revisions that are served.
	Versions() []string

	// Methods is the methods that only legacy clients have.
	Methods() map[string]Method

	// ServePost serves one message of a legacy client: a request, a notification, or the reply to a server's
	// request.
	ServePost(w http.ResponseWriter, r *http.Request, req *Request, body []byte, isReply bool)

	// ServeBatch serves an array of messages.
	ServeBatch(w http.ResponseWriter, r *http.Request, p *Plan, body []byte)

	// ServeSession serves GET and DELETE: the stream of a session, and its end.
	ServeSession(w http.ResponseWriter, r *http.Request)

	// OpenStdio opens the session of a client on byte streams. It must be closed. callerKey is "" for a single client.
	OpenStdio(out Sender, callerKey string) StdioSession

	// Resume continues a call that waits for input, if the request names one.
	Resume(ctx context.Context, req *Request) (_ Reply, resumed bool, _ error)

	// PendingOwner returns the replica that holds the call that a request continues; "" for none. The error is for
	// the client, if that replica is gone.
	PendingOwner(req *Request) (string, error)

	// Call makes a call whose client and server may speak different revisions; false means that it is for the
	// hub to make. If it makes the call, it releases the connection.
	Call(ctx context.Context, req *Request, to Target, conn *upstream.ManagedConn, release func()) (_ Reply, made bool, _ error)

	// ListChanged notifies the clients of a class.
	ListChanged(class *catalog.Class, k catalog.Kind)

	// ServerNotification takes a notification that belongs to no call.
	ServerNotification(from *upstream.ManagedConn, note rpc.Message)

	// Sweep ends what has been idle for too long. It is called regularly.
	Sweep(now time.Time)

	// Close ends all sessions and all calls that wait for input.
	Close()
}

// Session is what a legacy client has between its requests.
type Session interface {
	Name() string                  // identifies it towards servers
	Owner() upstream.Peer          // reaches the client outside its calls
	NoteUse(server string)         // the session gets the server's notifications from now on
	NoteState(ctx context.Context) // the session has state in this process from now on, which no other can take over
	SeenLists() *catalog.SeenLists // as the client knows them
}

// StdioSession is the session of a client on byte streams, to whom servers may send notifications and requests
// outside of its calls.
type StdioSession interface {
	upstream.Peer

	// Join makes a legacy request one of the session's.
	Join(req *Request) error

	// SetModern notes that the client speaks the modern revision: it gets only what it asks for, until it
	// initializes.
	SetModern(req *Request) error

	// EndRequests ends the requests of servers that wait for the client's reply, and those to come.
	EndRequests()

	// Close ends the session.
	Close()

	// TakeReply takes the client's reply to a server's request.
	TakeReply(body []byte)

	// Attach allows messages that belong to no request.
	Attach()
}

// noLegacy refuses the legacy revisions.
type noLegacy struct{ hub *Hub }

func (l noLegacy) ServePost(w http.ResponseWriter, r *http.Request, req *Request, _ []byte, _ bool) {
	l.hub.WriteHTTPError(w, r, mcp.Modern, http.StatusBadRequest, req.ID, l.hub.unsupportedVersion(r.Header.Get(mcp.HeaderVersion)))
}

func (l noLegacy) ServeBatch(w http.ResponseWriter, r *http.Request, p *Plan, _ []byte) {
	l.ServePost(w, r, &Request{Plan: p}, nil, false)
}

func (l noLegacy) ServeSession(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	l.hub.WriteHTTPError(w, r, mcp.Modern, http.StatusMethodNotAllowed, rpc.ID{}, fault.New(fault.InvalidRequest, "only POST is served here"))
}

func (l noLegacy) Call(context.Context, *Request, Target, *upstream.ManagedConn, func()) (Reply, bool, error) {
	return Reply{}, false, nil
}

func (l noLegacy) Resume(context.Context, *Request) (Reply, bool, error) { return Reply{}, false, nil }
func (l noLegacy) PendingOwner(*Request) (string, error)                 { return "", nil }
func (l noLegacy) Versions() []string                                    { return nil }
func (l noLegacy) Methods() map[string]Method                            { return nil }
func (l noLegacy) ListChanged(*catalog.Class, catalog.Kind)              {}
func (l noLegacy) ServerNotification(*upstream.ManagedConn, rpc.Message) {}
func (l noLegacy) Sweep(time.Time)                                       {}
func (l noLegacy) Close()                                                {}
func (l noLegacy) OpenStdio(Sender, string) StdioSession                 { return l }
func (l noLegacy) Join(req *Request) error                               { return l.hub.unsupportedVersion("") }
func (l noLegacy) SetModern(*Request) error                              { return nil }
func (l noLegacy) EndRequests()                                          {}
func (l noLegacy) TakeReply([]byte)                                      {}
func (l noLegacy) Attach()                                               {}
func (l noLegacy) Notify(string, rpc.Message)                            {}
func (l noLegacy) Request(context.Context, string, rpc.Message) (rpc.Reply, error) {
	return rpc.Reply{}, ErrCannotAsk
}
