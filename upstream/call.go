package upstream

import (
	"context"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Call is one request to a server, in no era's dress: the connection puts on what its server
// wears.
type Call struct {
	Method  string
	Params  mcp.Params        // as the client sent them
	Changes []jsonscan.Change // what of them is to be different: the name without its prefix, say

	Client   mcp.Client // on whose behalf
	Progress bool       // the client wants to hear of progress
	LogLevel string     // the least severe log messages the client wants; "" for none
	Peer     Peer       // the client while it waits; nil for calls of our own
	Endless  bool       // no reply is expected: the call is a stream of notifications
	Ready    func()     // is told that such a stream has begun; may be nil
}

// Peer is the client that waits for a call, as its server may speak to it meanwhile.
type Peer interface {
	// Notify takes a notification that belongs to the call. A progress notification has a token
	// that is not the client's.
	Notify(server string, note rpc.Message)

	// Ask puts a server's question to the client and gives its reply, whose id means nothing.
	Ask(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error)
}

// Listener hears what a server says outside any call.
type Listener interface {
	// Changed: a list of the server is not what it was.
	Changed(l *Lane, note rpc.Message)

	// Updated: a resource that was subscribed to has changed.
	Updated(l *Lane, note rpc.Message)

	// Said: a notification that belongs to no call.
	Said(l *Lane, note rpc.Message)

	// Turned: a lane came up or went down.
	Turned(l *Lane, up bool)
}
