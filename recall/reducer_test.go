package recall

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/stubreducer"
	"github.com/ctxgate/ctxgate/reduce"
)

// I1: any registered reducer cuts only what is stored, and a store that refuses leaves the text whole.
func TestI1RegisteredReducersCutOnlyWhatIsStored(t *testing.T) {
	stubreducer.Register(t, stubreducer.Opening)
	text := logText(200)
	for _, reducer := range reduce.Reducers {
		choice := pruneFor("which order was declined")
		choice.Reducer = reduce.Name(reducer.Name)
		p := DefaultPolicy()
		p.JSON = reducer.OwnKey
		body := quote(text)
		if reducer.Name == "json" {
			body = quote("[" + strings.Repeat(`{"id":4711,"state":"declined"},`, 999) + `{"id":1}]`)
		}
		r, _ := open(t, nil)
		out, s := shrinkWithGoal(t, r, body, p, choice)
		if s.Recoverable != 1 || len(out) >= len(body) {
			t.Fatalf("%s: %+v", reducer.Name, s)
		}
		id := r.ID("t", unquote(t, body))
		if back, err := fetch(t, r, "t", id); err != nil || back != unquote(t, body) || !bytes.Contains(out, []byte(id)) {
			t.Errorf("%s: %v, %.80q", reducer.Name, err, back)
		}
		refuses, store := open(t, nil)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if out, s := shrinkWithGoal(t, refuses, body, p, choice); s.PassedWhole != 1 || !bytes.Equal(out, body) {
			t.Errorf("%s: a refusing store: %+v", reducer.Name, s)
		}
	}
}
