package hub

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/mcp"
)

// having is a catalog with tools of these names and nothing else.
func having(names ...string) *catalog {
	o := offer{server: "a", known: true, prefix: "never"}
	for _, name := range names {
		o.items[tools] = append(o.items[tools], item{name, []byte(`{"name":"` + name + `"}`)})
	}
	return build([]offer{o}, Naming{})
}

// pending are the messages that wait for a session.
func (s *session) pending() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, msg := range s.backlog {
		out = append(out, string(msg.body))
	}
	return strings.Join(out, " ")
}

// A client is told that its list changed when it would get another one now: not of a list that is again
// as it was, not if it came or has read the list since, and once for each change. One whose session this
// process did not see begin may know any list, and is told.
func TestListChangedOnlyWhenTheClientsListChanged(t *testing.T) {
	h := newHub(t)
	client := mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}")}
	open := func() *session {
		t.Helper()
		s, _, err := h.openSession(auth.Local(), client, "", "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	c := h.shelves.of(&request{client: client, plan: h.plan.Load()})
	here, unknown := open(), open()
	before, after := having("x"), having("x", "y")
	here.lists.setAll(before)
	tell := func(now *catalog) {
		c.catalog.Store(now)
		c.untold[tools] = true // a list was read that differs from the one before
		h.shelves.tell(c)
	}
	expect := func(what string, s *session, times int) {
		t.Helper()
		note := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		if got, want := s.pending(), strings.TrimSpace(strings.Repeat(note+" ", times)); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	tell(before)
	expect("it changed and changed back", here, 0)
	expect("nobody knows what it has", unknown, 1)
	late := open()
	late.lists.setAll(after)
	reader := open()
	reader.lists.setAll(before)
	reader.lists.set(tools, after)
	tell(after)
	expect("it changed", here, 1)
	expect("it changed, unknown before", unknown, 2)
	expect("came after the change", late, 0)
	expect("read the list after the change", reader, 0)
	tell(after)
	expect("told once", here, 1)
	tell(before)
	expect("it changed back", here, 2)
	expect("changed for the late one", late, 1)
}

// Templates are told of as resources are.
func TestTemplatesChangeWithResources(t *testing.T) {
	o := offer{server: "a", known: true, prefix: "never"}
	o.items[templates] = []item{{"f://{x}", []byte(`{"uriTemplate":"f://{x}"}`)}}
	var s shownLists
	s.setAll(having())
	if s.update(tools, build([]offer{o}, Naming{})) {
		t.Error("the tools changed")
	}
	if !s.update(resources, build([]offer{o}, Naming{})) || s.update(resources, build([]offer{o}, Naming{})) {
		t.Error("the resources did not change once")
	}
}
