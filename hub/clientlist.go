package hub

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	maxClientList = 256              // clients that are remembered
	clientIdle    = 15 * time.Minute // how long a client over HTTP counts as connected without a request
	stdioPrefix   = "stdio-"         // of the connections of clients on byte streams
)

// ClientStatus is a client of the MCP endpoint. One on byte streams is listed while it is connected, one
// over HTTP for a while after its last request.
type ClientStatus struct {
	ID            string // as its entry names it; "" where it names none
	Name, Version string // as it says itself
	Transport     string // stdio or http
	Since         time.Time
	LastRequest   time.Time
	Requests      int64
}

// clientList remembers which clients made requests lately. The zero value is an empty list.
type clientList struct {
	mu  sync.Mutex
	all map[string]*listedClient
}

type listedClient struct {
	conn   string // of a client on byte streams
	info   string // raw
	status ClientStatus
}

// noteRequest adds a request of a client. On byte streams the connection tells clients apart; over HTTP
// their caller, address and name do.
func (l *clientList) noteRequest(req *Request, now time.Time) {
	conn, transport := "", "http"
	key := req.CallerKey + "\x00" + req.ClientID + "\x00" + string(req.Client.Info)
	if req.conn == "" || strings.HasPrefix(req.conn, stdioPrefix) {
		conn, transport, key = req.conn, "stdio", "\x00"+req.conn
	} else if len(req.Client.Info) == 0 && (req.ClientID == "" || req.Method == mcp.Initialize) {
		return // it does not say who it is, or only in what it is about to send
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[key]
	if c == nil {
		if l.all == nil {
			l.all = map[string]*listedClient{}
		}
		if len(l.all) == maxClientList {
			l.removeOldest()
		}
		c = &listedClient{conn: conn, status: ClientStatus{ID: req.ClientID, Transport: transport, Since: now}}
		l.all[key] = c
	}
	if c.info != string(req.Client.Info) && len(req.Client.Info) > 0 {
		c.info = string(req.Client.Info)
		if fields, err := jsonscan.FieldsOf(req.Client.Info); err == nil {
			c.status.Name, c.status.Version = fault.Clip(fields.Text("name")), fault.Clip(fields.Text("version"))
		}
	}
	c.status.LastRequest = now
	c.status.Requests++
}

// removeOldest removes the client whose last request is the longest ago; l.mu is held.
func (l *clientList) removeOldest() {
	oldest := ""
	for key, c := range l.all {
		if oldest == "" || c.status.LastRequest.Before(l.all[oldest].status.LastRequest) {
			oldest = key
		}
	}
	delete(l.all, oldest)
}

// removeConn removes the client of a connection that has ended.
func (l *clientList) removeConn(conn string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, "\x00"+conn)
}

// Clients returns the clients that are connected, the longest first.
func (h *Hub) Clients(now time.Time) []ClientStatus {
	h.clients.mu.Lock()
	defer h.clients.mu.Unlock()
	out := make([]ClientStatus, 0, len(h.clients.all))
	for _, c := range h.clients.all {
		if c.status.Transport == "stdio" || now.Sub(c.status.LastRequest) < clientIdle {
			out = append(out, c.status)
		}
	}
	slices.SortFunc(out, func(a, b ClientStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return out
}
