package chat_test

import (
	"fmt"
	"reflect"
	"strings"
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
				masked += both(t, recent, warm, cold, o, shape, body)
			}
			if masked == 0 {
				t.Errorf("%s, %s: nothing was masked", path, advance)
			}
		}
	}
}

// both has a request shrunk by one that remembers the conversation and by one that does not, and
// counts the edits.
func both(t *testing.T, recent *history.Recent, warm, cold chat.Shrink, o chat.Outgoing, shape history.Shape, body string) int {
	t.Helper()
	var got, want chat.Shrunk
	var err error
	o.Body = []byte(body)
	if o.Talk, err = recent.Read("o", shape, o.Body, nil); err != nil {
		t.Fatal(err)
	}
	got = warm(t.Context(), o)
	recent.Keep(o.Talk)
	if o.Talk, err = history.Read(shape, o.Body, 0); err != nil {
		t.Fatal(err)
	}
	if want = cold(t.Context(), o); len(want.Edits) == 0 {
		got.Edits, got.Cleared = want.Edits, want.Cleared[:len(got.Cleared)] // none is none
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s of %d bytes:\n%+v\n%+v", shape, len(body), got, want)
	}
	return len(got.Edits)
}

// I2: nor where a request is sent before all results of a turn are there, and the next one has them:
// what they name is then in the placeholders of results that were masked at that turn.
func TestI2ATurnGoesOn(t *testing.T) {
	for _, window := range []int{1, 2, 3} {
		for _, advance := range []string{history.Stride, history.EachTurn, history.Auto} {
			recent := history.NewRecent(8<<20, 0)
			warm, cold := chat.Mask(keeper(t, nil), time.Now), chat.Mask(keeper(t, nil), time.Now)
			o := chat.Outgoing{Provider: "p", Model: "m", Policy: history.DefaultPolicy(), Cache: chat.Cache{Write: 1, Read: .5, TTL: unit.Duration(5 * time.Minute)}}
			o.Policy.Advance, o.Policy.Stride, o.Policy.WindowTurns = advance, 2, window
			body := `{"model":"m","messages":[{"role":"user","content":"go"}`
			masked := 0
			for i := range 30 {
				body += fmt.Sprintf(`,{"role":"assistant","content":null,"tool_calls":[{"id":"a%d","type":"function","function":{"name":"read","arguments":"{}"}},{"id":"b%d","type":"function","function":{"name":"read","arguments":"{\"path\":\"src/part%d/main.go\"}"}}]}`, i, i, i-window)
				for _, id := range []string{"a", "b"} {
					text := strings.Repeat(fmt.Sprintf("see src/part%d/main.go and lib/other%d/%s.go\n", i, i, id), 12)
					body += fmt.Sprintf(`,{"role":"tool","tool_call_id":"%s%d","content":%q}`, id, i, text)
					masked += both(t, recent, warm, cold, o, history.Chat, body+"]}")
				}
				body += fmt.Sprintf(`,{"role":"assistant","content":"lib/other%d/a.go is next"}`, i-window-1)
			}
			if masked == 0 {
				t.Errorf("%s: nothing was masked", advance)
			}
		}
	}
}
