package daemon

import (
	"maps"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

const (
	// maxReplayed is the longest request that is kept to be sent again.
	maxReplayed = 64 << 10

	// maxSubscriptions is how many subscriptions are made again at another gateway.
	maxSubscriptions = 1000

	ownPrefix = "ctxgate-bridge-" // of the ids of the bridge's own requests
)

// isRepeatable reports whether a request has no effect beyond the session, so that another gateway may get it again.
func isRepeatable(method string) bool {
	switch method {
	case mcp.Initialize, mcp.Ping, mcp.ServerDiscover, mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList, mcp.ResourceTemplatesList,
		mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe, mcp.LoggingSetLevel, mcp.SubscriptionsListen:
		return true
	}
	return false
}

// sessionState is what a legacy client has set up, to set it up again at another gateway. The bridge's lock guards it.
type sessionState struct {
	initialize    []byte // the last one; nil before
	initialized   []byte
	level         []byte                 // the last logging/setLevel that was accepted
	subscriptions map[string][]byte      // by URI: the resources/subscribe that was accepted
	pending       map[string]rpc.Message // by id: requests that change the state when they are accepted
	lists         map[string]bool        // the lists that the client has asked for
	wasConnected  bool
}

// noteRequest notes a request that changes the session, or shows what the client knows.
func (s *sessionState) noteRequest(m *rpc.Message) {
	if len(m.Body) > maxReplayed {
		return
	}
	switch m.Method {
	case mcp.Initialize:
		s.initialize, s.initialized = m.Body, nil
	case mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList:
		if s.lists == nil {
			s.lists = map[string]bool{}
		}
		s.lists[m.Method] = true
	case mcp.LoggingSetLevel, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe:
		if s.pending == nil {
			s.pending = map[string]rpc.Message{}
		}
		s.pending[string(m.ID.Of(m.Body))] = *m
	}
}

// noteReply notes that the request with an id was accepted.
func (s *sessionState) noteReply(id string) {
	m, ok := s.pending[id]
	if !ok {
		return
	}
	delete(s.pending, id)
	params, _ := mcp.ParseParams(m.Params.Of(m.Body))
	switch uri := params.Text("uri"); m.Method {
	case mcp.LoggingSetLevel:
		s.level = m.Body
	case mcp.ResourcesUnsubscribe:
		delete(s.subscriptions, uri)
	case mcp.ResourcesSubscribe:
		if s.subscriptions == nil {
			s.subscriptions = map[string][]byte{}
		}
		if len(s.subscriptions) < maxSubscriptions {
			s.subscriptions[uri] = m.Body
		}
	}
}

// replay returns the messages that set the session up on a link; the bridge's lock is held.
func (s *sessionState) replay(b *bridge, l *link) [][]byte {
	if !s.wasConnected || s.initialize == nil {
		return nil
	}
	var all [][]byte
	add := func(method string, body []byte) {
		fields, err := jsonscan.FieldsOf(body)
		if err != nil {
			return
		}
		b.ownIDs++
		id := `"` + ownPrefix + strconv.Itoa(b.ownIDs) + `"`
		l.own[id] = method
		all = append(all, oneLine(fields.With(jsonscan.Change{Key: "id", Value: []byte(id)})))
	}
	add(mcp.Initialize, s.initialize)
	if s.initialized != nil {
		all = append(all, oneLine(s.initialized))
	}
	if s.level != nil {
		add(mcp.LoggingSetLevel, s.level)
	}
	for _, uri := range slices.Sorted(maps.Keys(s.subscriptions)) {
		add(mcp.ResourcesSubscribe, s.subscriptions[uri])
	}
	// Requests that the old gateway is still to answer change the session too.
	for _, m := range s.pending {
		add(m.Method, m.Body)
	}
	return all
}

// moveListens moves the listen streams of a link to another; the bridge's lock is held.
func (l *link) moveListens(to *link) (bodies [][]byte) {
	for id, r := range l.inFlight {
		if r.method != mcp.SubscriptionsListen || r.body == nil {
			continue
		}
		delete(l.inFlight, id)
		l.moved[id] = true
		to.inFlight[id] = r
		to.muteAcks[id] = true
		bodies = append(bodies, oneLine(r.body))
	}
	return bodies
}

// isKnownAck reports whether a notification acknowledges a listen stream that the client knows to be acknowledged; the
// bridge's lock is held.
func (l *link) isKnownAck(m *rpc.Message) bool {
	if m.Method != mcp.NotifySubscriptionsAcknowledged || len(l.muteAcks) == 0 {
		return false
	}
	params, err := mcp.ParseParams(m.Params.Of(m.Body))
	if err != nil {
		return false
	}
	id, _ := params.Meta(mcp.MetaSubscriptionID)
	known := l.muteAcks[string(id)]
	delete(l.muteAcks, string(id))
	return known
}

// changedLists returns the notifications that make a legacy client read its lists again: another gateway may offer others.
func (b *bridge) changedLists() (notes [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session.initialized == nil {
		return nil
	}
	for list, note := range map[string]string{
		mcp.ToolsList: mcp.NotifyToolsChanged, mcp.PromptsList: mcp.NotifyPromptsChanged, mcp.ResourcesList: mcp.NotifyResourcesChanged,
	} {
		if b.session.lists[list] {
			notes = append(notes, []byte(`{"jsonrpc":"2.0","method":"`+note+`"}`))
		}
	}
	return notes
}
