package chat_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// I2: what is remembered of a conversation's earlier requests changes nothing of what becomes of the
// next, nor of what is told about it: not when it grows, is sent again, or loses its last turns.
func TestI2WhatWasMadeIsMadeAgain(t *testing.T) {
	shapes := map[string]history.Shape{"/v1/chat/completions": history.Chat, "/v1/messages": history.Messages, "/v1/responses": history.Responses}
	for path, shape := range shapes {
		for _, advance := range []string{history.Auto, history.Stride, history.EachTurn} {
			recent := history.NewRecent(8<<20, 0)
			warm, cold := chat.Mask(keeper(t, nil), time.Now), chat.Mask(keeper(t, nil), time.Now)
			o := chat.Outgoing{Provider: "p", Model: "m", Policy: history.DefaultPolicy(), Cache: chat.Cache{Write: 1, Read: .5, TTL: unit.Duration(5 * time.Minute)}}
			o.Policy.Advance, o.Policy.Stride, o.Policy.WindowTurns, o.Policy.PastBreakpoints = advance, 5, 3, true
			masked := 0
			for step, turns := range []int{20, 21, 22, 22, 22, 30, 31, 29, 30, 31, 60, 61, 62, 62, 64, 66, 90, 91, 92, 95} {
				switch step {
				case 13:
					o.Model = "n" // where nothing is masked yet
				case 16:
					o.Provider = "another"
				}
				body := talks[path](turns)
				if shape == history.Messages {
					body = markLast(body)
				}
				o.Body = []byte(body)
				var err error
				if o.Talk, err = recent.Read("o", shape, o.Body); err != nil {
					t.Fatal(err)
				}
				got := warm(t.Context(), o)
				recent.Keep(o.Talk)
				if o.Talk, err = history.Read(shape, []byte(body), 0); err != nil {
					t.Fatal(err)
				}
				want := cold(t.Context(), o)
				if got.Cleared == nil {
					got.Cleared = want.Cleared[:0]
				}
				if len(got.Edits) != len(want.Edits) || len(got.Edits) > 0 && !reflect.DeepEqual(got, want) {
					t.Fatalf("%s, %s, step %d:\n%+v\n%+v", path, advance, step, got, want)
				}
				masked += len(got.Edits)
			}
			if masked == 0 {
				t.Errorf("%s, %s: nothing was masked", path, advance)
			}
		}
	}
}
