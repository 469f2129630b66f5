package hub

import (
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// maxSubscriptions is how many resources one client may watch.
const maxSubscriptions = 1000

// Changed makes the hub the listener of its servers: their lists are read again.
func (h *Hub) Changed(l *upstream.Lane, _ rpc.Message) { h.shelves.reread(l) }

// Updated tells who watches a resource that it changed.
func (h *Hub) Updated(l *upstream.Lane, note rpc.Message) {
	params, err := jsonscan.ReadFields(note.Body, note.Params)
	if err != nil {
		return
	}
	h.subs.tell(l, params.Text("uri"), &update{hub: h, server: l.Server(), note: note})
}

// Said passes on what a server says outside any call (A7): to the sessions that use it. A session
// uses a server when it came by the server's own path, has called a tool, prompt, resource or completion of it,
// or is subscribed to a resource of it. On stdin and stdout the one client hears everything.
func (h *Hub) Said(l *upstream.Lane, note rpc.Message) {
	if l.Shared() {
		h.passOn(l.Server(), h.sessions.using(l.Server()), note)
	}
}

// Turned notes that a server came or went.
func (h *Hub) Turned(l *upstream.Lane, up bool) {
	if l.Shared() {
		h.meter.Up(l.Server(), up)
	}
	if up {
		h.shelves.met(l)
	} else {
		h.shelves.failed(l)
	}
}

// tellChanged tells the clients of a class that one of their lists is not what it was: those for whom
// that is so, at the door that they use.
func (h *Hub) tellChanged(c *class, k kind) {
	note := []byte(`{"jsonrpc":"2.0","method":"` + listing[k].changed + `"}`)
	h.sessions.each(func(s *session) {
		if !s.mute.Load() && upstream.Class(s.client) == c.name && s.lists.update(k, h.shelves.door(c, s.only)) {
			_ = s.send(note)
		}
	})
	h.listens.each(func(l *listening) {
		if l.flags[flagOf[k]] && upstream.Class(l.req.client) == c.name && l.lists.update(k, h.shelves.door(c, l.req.only)) {
			l.changed(listing[k].changed)
		}
	})
}

// flagOf is what a listener says to be told of a list.
var flagOf = map[kind]string{tools: "toolsListChanged", prompts: "promptsListChanged", resources: "resourcesListChanged"}
