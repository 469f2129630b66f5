package hub

import (
	"bytes"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/mcp"
)

func newHub(t *testing.T) *Hub {
	t.Helper()
	h, err := New(Settings{Hub: Default()}, Deps{Secret: bytes.Repeat([]byte("k"), 32)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Requests that come at once for a session that this replica does not hold yet share one: an answer
// to a question of one of them may come with any other.
func TestSessionMadeOnce(t *testing.T) {
	first, h := newHub(t), newHub(t)
	_, id, err := first.openSession(auth.Local(), mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}")}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	got := make([]*session, 32)
	for i := range got {
		wg.Go(func() { got[i], _ = h.session(id, auth.Local(), "", "") })
	}
	wg.Wait()
	for _, one := range got {
		if one == nil || one != got[0] {
			t.Fatal("there are two sessions of one id")
		}
	}
	if one, err := h.session(id, auth.Local(), "a", ""); err == nil || one != nil {
		t.Error("a session is good at another door")
	}
}

// full is a way to a client that is full at times, or closed.
type full struct {
	err  error
	sent []string
}

func (f *full) send(parts ...[]byte) error { return f.pass(uncounted(parts)) }

func (f *full) pass(m *message) error {
	if f.err != nil {
		return f.err
	}
	f.sent = append(f.sent, string(m.body))
	return nil
}

// A stream that was full for a moment goes on; only one that is closed is given up, and then what
// comes waits for the next, within bounds.
func TestSessionStreamFull(t *testing.T) {
	s := newHub(t).newSession(auth.Local(), mcp.Client{}, "", "x")
	out := &full{err: errSlow}
	s.stream = out
	if err := s.send([]byte("lost")); err == nil {
		t.Error("a message that was not taken was")
	}
	out.err = nil
	if err := s.send([]byte("a"), []byte("b")); err != nil || len(out.sent) != 1 || out.sent[0] != "ab" {
		t.Errorf("%v, %q", err, out.sent)
	}
	out.err = errNoStream
	for range maxBacklog + 10 {
		if err := s.send([]byte("later")); err != nil {
			t.Fatal(err)
		}
	}
	next := &full{}
	if err := s.listen(next); err != nil || len(next.sent) != maxBacklog {
		t.Errorf("%v, %d messages", err, len(next.sent))
	}
	if err := s.send(make([]byte, backlogBytes+1)); err != nil || len(next.sent) != maxBacklog+1 {
		t.Errorf("%v", err)
	}
	s.unlisten(next)
	if err := s.send(make([]byte, backlogBytes+1)); err == nil {
		t.Error("a message larger than all that may wait was kept")
	}
}
