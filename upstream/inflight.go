package upstream

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// inflight is one call in flight. Its exported methods are what its wire uses (wire.Request).
type inflight struct {
	conn           *Conn
	id             int64
	call           *Call
	reply          chan rpc.Message
	failed         chan error
	activity       chan struct{} // the server showed that it works on the call
	clientRequests atomic.Int32  // requests of the server that wait for the client: the server waits for us
	notifying      sync.Mutex    // held while the client gets a notification of the call
	finished       atomic.Bool   // answered or given up: nothing may follow
	hasReply       atomic.Bool   // answered
	memory         *membudget.Scope
	ownsMemory     bool // memory belongs to the call, not to its caller
	stop           func()
}

func (f *inflight) ID() int64                { return f.id }
func (f *inflight) Method() string           { return f.call.Method }
func (f *inflight) Memory() *membudget.Scope { return f.memory }
func (f *inflight) IsFinished() bool         { return f.finished.Load() }
func (f *inflight) OnFinish(stop func())     { f.stop = stop }
func (f *inflight) Deliver(msg []byte)       { f.conn.handleMessage(msg, f) }

func (f *inflight) Malformed(what string, err error) { f.conn.reportOdd(f, what, err) }

// Param is the raw value of a member of the params as the server gets them.
func (f *inflight) Param(key string) []byte {
	for _, change := range f.call.Changes {
		if change.Key == key {
			return change.Value
		}
	}
	raw, _ := f.call.Params.Get(key)
	return raw
}

func (f *inflight) ParseReply(body []byte) (rpc.Message, bool, error) {
	depth, chars := f.conn.limits.parse()
	m, err := rpc.ParseMessage(body, depth, chars)
	return m, err == nil && m.IsReply() && string(m.ID.Of(m.Body)) == strconv.FormatInt(f.id, 10), err
}

func (f *inflight) Fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// RefreshTools lists the server's tools; the wire notes on the way what they want in headers.
func (f *inflight) RefreshTools(ctx context.Context) {
	const maxPages = 100
	var changes []jsonscan.Change
	for range maxPages {
		m, err := f.conn.callEmpty(ctx, mcp.ToolsList, f.call.Client, changes...)
		if err != nil || m.IsError {
			return
		}
		result, err := jsonscan.ReadFields(m.Body, m.Result)
		cursor := result.Text("nextCursor")
		if err != nil || cursor == "" {
			return
		}
		changes = []jsonscan.Change{{Key: "cursor", Value: mcp.Quote(cursor)}}
	}
}

// markFinished makes the call finished, after the notification that is being passed on. It returns false when the
// call was finished before.
func (f *inflight) markFinished() bool {
	f.notifying.Lock()
	defer f.notifying.Unlock()
	return !f.finished.Swap(true)
}

// notifyClient passes a notification to the call's client, unless the call is finished. The two exclude each
// other: over HTTP a notification and the reply may come on different streams at once.
func (f *inflight) notifyClient(note rpc.Message) {
	f.notifying.Lock()
	defer f.notifying.Unlock()
	if !f.finished.Load() {
		f.call.Peer.Notify(f.conn.serverID, note)
	}
}

// noteActivity gives the server its full time again.
func (f *inflight) noteActivity() {
	select {
	case f.activity <- struct{}{}:
	default:
	}
}
