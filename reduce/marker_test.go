package reduce

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// The golden texts of the plain markers, with and without an id.
func TestPlainMarkersSayWhatToCall(t *testing.T) {
	const id = "prn_0123456789abcdefghjkmnpqrs"
	str := StringCut{Str: jsonscan.Str{Chars: 353208}, Head: 2000, Tail: 2000, markers: PlainMarkers}
	array := Gap{Elements: 1500, Dropped: 1200, FirstChar: 1201, LastChar: 46010, markers: PlainMarkers}
	for got, want := range map[string]string{
		str.Marker(id):   "\n[… 349,208 characters left out; call recover_text with prune_id=" + id + " chars=2001-351208]\n",
		str.Marker(""):   "\n[… 349,208 characters left out]\n",
		array.Marker(id): "[… 1,200 of 1,500 elements left out; call recover_text with prune_id=" + id + " chars=1201-46010]",
		array.Marker(""): "[… 1,200 of 1,500 elements left out]",
		prune.Block{First: 12, Last: 53}.PlainMarker(id): "[lines 12-53 left out; call recover_text with prune_id=" + id + "]",
		prune.Block{First: 7, Last: 7}.PlainMarker(id):   "[line 7 left out; call recover_text with prune_id=" + id + "]",
		string(appendGrouped(nil, 0)):                    "0",
		string(appendGrouped(nil, 999)):                  "999",
		string(appendGrouped(nil, 1_000_000_000)):        "1,000,000,000",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Plain markers are shorter than the document's, whatever the numbers: what the document's rules say is worth
// cutting is worth it with plain markers, too.
func TestPlainMarkersAreShorterThanTheDocuments(t *testing.T) {
	const id = "prn_0123456789abcdefghjkmnpqrs"
	for _, id := range []string{"", id} {
		for n := 3; n < 1_000_000_000; n = n*3 + 1 {
			str := StringCut{Str: jsonscan.Str{Chars: n}, Head: n / 3, Tail: n / 3}
			array := Gap{Chars: n, Elements: n, Dropped: n - 1, FirstChar: n, LastChar: 2 * n}
			plainStr, plainArray := str, array
			plainStr.markers, plainArray.markers = PlainMarkers, PlainMarkers
			for plain, document := range map[string]string{plainStr.Marker(id): str.Marker(id), plainArray.Marker(id): array.Marker(id)} {
				if len(plain) >= len(document) {
					t.Errorf("%q is not shorter than %q", plain, document)
				}
			}
			for _, b := range []prune.Block{{First: n, Last: n}, {First: n, Last: n + 1}, {First: 1, Last: n}, {First: n, Last: 10 * n}} {
				if plain, document := b.PlainMarker(id), b.Marker(id); len(plain) >= len(document) {
					t.Errorf("%q is not shorter than %q", plain, document)
				}
			}
		}
	}
}

// I5: with plain markers a string that would not become shorter stays whole; the document's mask cuts it (G3).
func TestPlainMaskNeverMakesAStringLonger(t *testing.T) {
	for over := range 300 {
		text := strings.Repeat("x", 4000+over)
		body := fmt.Appendf(nil, `{"t":%q}`, text)
		str := jsonscan.Str{Span: jsonscan.Span{Start: 6, End: 6 + len(text)}, Chars: len(text)}
		p := Policy{Mask: DefaultMask(), IDLen: len(testID)}
		if _, ok := maskReducer.Cutter(t.Context(), p)(body, str); ok != (over > 0) {
			t.Errorf("the document's mask at %d: %v", len(text), ok)
		}
		p.Markers = PlainMarkers
		c, ok := maskReducer.Cutter(t.Context(), p)(body, str)
		if !ok {
			continue
		}
		out := jsonscan.AppendSpliced(nil, body, c.Edits(testID))
		if len(out) >= len(body) || !json.Valid(out) {
			t.Errorf("%d bytes became %d", len(body), len(out))
		}
	}
}
