package chat

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Each copy of a body is sent with the edits applied, and reading a closed body fails.
func TestSentBody(t *testing.T) {
	c := &call{body: []byte("0123456789"), edits: []jsonscan.Edit{{Span: jsonscan.Span{Start: 1, End: 9}, Text: []byte("…")}}}
	sent := &sendProgress{}
	first, second := c.sentBody(sent), c.sentBody(&sendProgress{})
	if got, err := io.ReadAll(first); err != nil || string(got) != "0…9" || !sent.bodyTaken.Load() {
		t.Errorf("got %q, %v", got, err)
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, err := first.Read(make([]byte, 4)); n != 0 || err == nil {
		t.Errorf("a closed body was read: %d, %v", n, err)
	}
	if got, err := io.ReadAll(second); err != nil || string(got) != "0…9" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A transport may close a body while another goroutine reads it.
func TestSentBodyClosedWhileRead(t *testing.T) {
	for range 200 {
		body := (&call{body: []byte(strings.Repeat("x", 32<<10))}).sentBody(&sendProgress{})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, body) })
		wg.Go(func() { _ = body.Close() })
		wg.Wait()
	}
}
