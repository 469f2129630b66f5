package legacy

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// queued returns the messages that are queued for a session.
func (s *session) queued() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, m := range s.queue {
		out = append(out, string(m.Body()))
	}
	return strings.Join(out, " ")
}

// A client is notified that its list changed when it would get another one now: not of a list that is again
// as it was, not if it opened its session or read the list since, and once for each change. A session that this
// process did not see begin may know any list, and is notified.
func TestListChangedOnlyWhenTheClientsListChanged(t *testing.T) {
	var tools []string
	e := newTestEndpoint(t, hub.Deps{Builtins: []hub.Builtin{{ID: "a", Tools: func() (raw [][]byte) {
		for _, name := range tools {
			raw = append(raw, []byte(`{"name":"`+name+`"}`))
		}
		return raw
	}}}})
	client := mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}")}
	open := func() *session {
		t.Helper()
		s, _, err := e.openSession(auth.LocalCaller(), client, "", "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	class := e.hub.Catalog().ClassOf(upstream.Caller{Client: client})
	having := func(names ...string) *catalog.Catalog {
		t.Helper()
		tools = names
		if err := e.hub.Apply(e.hub.Plan().Settings); err != nil {
			t.Fatal(err)
		}
		return e.hub.Catalog().Current(class, "")
	}
	here, unknown := open(), open()
	before, after := having("x"), having("x", "y")
	here.lists.SetAll(before)
	notify := func(names ...string) {
		t.Helper()
		having(names...)
		e.ListChanged(class, catalog.Tools) // a list was read that differs from the one before
	}
	expect := func(what string, s *session, times int) {
		t.Helper()
		note := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		if got, want := s.queued(), strings.TrimSpace(strings.Repeat(note+" ", times)); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	notify("x")
	expect("it changed and changed back", here, 0)
	expect("it is unknown which list the client has", unknown, 1)
	late := open()
	late.lists.SetAll(after)
	reader := open()
	reader.lists.SetAll(before)
	reader.lists.Set(catalog.Tools, after)
	notify("x", "y")
	expect("it changed", here, 1)
	expect("it changed, unknown before", unknown, 2)
	expect("opened after the change", late, 0)
	expect("read the list after the change", reader, 0)
	notify("x", "y")
	expect("notified once", here, 1)
	notify("x")
	expect("it changed back", here, 2)
	expect("changed for the late one", late, 1)
}
