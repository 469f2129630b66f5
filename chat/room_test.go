package chat

import (
	"io"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// A body that is still on its way keeps its room; one that is closed is not read any more, and
// closing it twice leaves the room once.
func TestRoomIsLeftWhenNobodyReads(t *testing.T) {
	r := &room{body: []byte("0123456789")}
	r.guests.Store(1)
	c := &call{body: r.body, room: r, edits: []jsonscan.Edit{{Span: jsonscan.Span{Start: 1, End: 9}, Text: []byte("…")}}}
	a, b := c.send(&delivery{}), c.send(&delivery{})
	if got, err := io.ReadAll(a); err != nil || string(got) != "0…9" {
		t.Errorf("got %q, %v", got, err)
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := r.guests.Load(); n != 2 {
		t.Errorf("%d are in the room, want the call and the other body", n)
	}
	if n, err := a.Read(make([]byte, 4)); n != 0 || err == nil {
		t.Errorf("a closed body was read: %d, %v", n, err)
	}
	_ = b.Close()
	if n := r.guests.Load(); n != 1 {
		t.Errorf("%d are in the room, want the call", n)
	}
}

// A transport may close a body while it reads it.
func TestRoomClosedWhileRead(t *testing.T) {
	for range 200 {
		r := enterRoom(roomLeast)
		r.body = append(r.body[:0], make([]byte, roomLeast)...)
		c := &call{body: r.body, room: r}
		out := c.send(&delivery{})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, out) })
		wg.Go(func() { _ = out.Close() })
		r.leave()
		other := enterRoom(roomLeast) // it may be the same, once nobody reads it
		for i := range other.body {
			other.body[i] = 'x'
		}
		wg.Wait()
		other.leave()
	}
}

// I9: nobody holds much more than his body is long.
func TestI9RoomsFit(t *testing.T) {
	for range 50 {
		large := enterRoom(roomMost)
		large.body = make([]byte, roomMost)
		large.leave()
		small := enterRoom(roomLeast)
		small.body = make([]byte, roomLeast)
		small.leave()
	}
	for _, size := range []int64{-1, 0, 10, roomLeast, roomLeast + 1, 1 << 20, roomMost - 1, roomMost, roomMost + 1, 1 << 40} {
		if r := enterRoom(size); int64(cap(r.body)) > 2*max(0, size) {
			t.Errorf("room of %d for %d bytes", cap(r.body), size)
		}
	}
}
