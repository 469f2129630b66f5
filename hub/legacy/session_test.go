package legacy

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
)

// newTestEndpoint returns the legacy side of a hub without servers.
func newTestEndpoint(t *testing.T, d hub.Deps) (e *endpoint) {
	t.Helper()
	d.Secret = bytes.Repeat([]byte("k"), 32)
	d.Meter = meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
	d.Legacy = func(h *hub.Hub) (hub.Legacy, error) {
		l, err := New(h)
		e, _ = l.(*endpoint)
		return l, err
	}
	if _, err := hub.New(hub.Settings{Hub: hub.Default(), HTTP: front.Default().HTTP}, d); err != nil {
		t.Fatal(err)
	}
	return e
}

// Concurrent requests for a session that this replica does not hold yet share one session: the reply to a server's
// request of one of them may come with any other.
func TestSessionMadeOnce(t *testing.T) {
	first, e := newTestEndpoint(t, hub.Deps{}), newTestEndpoint(t, hub.Deps{})
	_, id, err := first.openSession(auth.LocalCaller(), mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}")}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	got := make([]*session, 32)
	for i := range got {
		wg.Go(func() { got[i], _ = e.findByID(id, auth.LocalCaller(), "", "") })
	}
	wg.Wait()
	for _, one := range got {
		if one == nil || one != got[0] {
			t.Fatal("there are two sessions of one id")
		}
	}
	if one, err := e.findByID(id, auth.LocalCaller(), "a", ""); err == nil || one != nil {
		t.Error("a session is valid at another endpoint")
	}
}

// full is a Sender whose queue is full at times, or closed.
type full struct {
	err  error
	sent []string
}

func (f *full) Send(parts ...[]byte) error {
	m, _ := hub.NewMessage(nil, parts...)
	return f.SendMessage(m)
}

func (f *full) SendMessage(m *hub.Message) error {
	if f.err != nil {
		return f.err
	}
	f.sent = append(f.sent, string(m.Body()))
	return nil
}

// A stream whose queue was full for a moment goes on; only a closed one is given up, and then messages are queued
// for the next, within bounds.
func TestSessionStreamFull(t *testing.T) {
	s := newTestEndpoint(t, hub.Deps{}).newSession(auth.LocalCaller(), mcp.Client{}, "", "x")
	out := &full{err: fault.New(fault.Full, "slow")}
	s.stream = out
	if err := s.Send([]byte("lost")); err == nil {
		t.Error("a message that was not taken was")
	}
	out.err = nil
	if err := s.Send([]byte("a"), []byte("b")); err != nil || len(out.sent) != 1 || out.sent[0] != "ab" {
		t.Errorf("%v, %q", err, out.sent)
	}
	out.err = hub.ErrNoStream
	for range maxQueued + 10 {
		if err := s.Send([]byte("later")); err != nil {
			t.Fatal(err)
		}
	}
	next := &full{}
	if err := s.attachStream(next); err != nil || len(next.sent) != maxQueued {
		t.Errorf("%v, %d messages", err, len(next.sent))
	}
	if err := s.Send(make([]byte, maxQueuedBytes+1)); err != nil || len(next.sent) != maxQueued+1 {
		t.Errorf("%v", err)
	}
	s.detachStream(next)
	if err := s.Send(make([]byte, maxQueuedBytes+1)); err == nil {
		t.Error("a message larger than all that may wait was kept")
	}
}

// findByID finds the session of an id.
func (e *endpoint) findByID(id string, caller auth.Caller, server, callerKey string) (*session, error) {
	t, err := e.readToken(id, caller, server)
	if err != nil {
		return nil, err
	}
	return e.findSession(context.Background(), t, caller, callerKey)
}
