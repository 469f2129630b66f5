package recall

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// What is missing from a text is known for the texts that were shown to the tenant, also inside a client's JSON or
// words, and for no others: a marker proves nothing.
func TestOmittedBytes(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 150, 140
	text := strings.Repeat("a line of a result é\n", 100)
	out, _ := shrink(t, r, "t", quote(text), p)
	shown := unquote(t, out)
	missing := len(text) - len(shown)
	plain := p
	plain.Markers, plain.RecoverLine = reduce.PlainMarkers, false
	out, _ = shrink(t, r, "t", quote(text), plain)
	withoutID := unquote(t, out)
	other, _ := shrink(t, r, "t", quote(strings.Repeat("another result of a tool\n", 200)), p)
	marker := shown[strings.Index(shown, "[recover"):]
	marker = marker[:strings.Index(marker, "]")+1]

	for name, tt := range map[string]struct {
		tenant, text string
		want, within int
	}{
		"as shown":                  {"t", shown, missing, 0},
		"without an id":             {"t", withoutID, len(text) - len(withoutID), 0},
		"in JSON":                   {"t", `[{"type":"text","text":` + string(jsonscan.AppendQuoted(nil, shown)) + `}]`, missing, 40},
		"two in JSON":               {"t", `["x",` + string(jsonscan.AppendQuoted(nil, shown)) + `,` + string(jsonscan.AppendQuoted(nil, unquote(t, other))) + `]`, missing + 5000 - len(unquote(t, other)), 200},
		"among words of the client": {"t", "Output:\n" + shown + "\nexit status 0", missing, 150},
		"whole":                     {"t", text, 0, 0},
		"another tenant's":          {"u", shown, 0, 0},
		"a quoted marker":           {"t", "grep found: " + marker, 0, 0},
		"an id that is not stored":  {"t", strings.Repeat("x", 300) + "[recover: prune_id=prn_00000000000000000000000000 chars=1-99999]", 0, 0},
		"an absurd range":           {"t", "[recover: prune_id=" + marker[len("[recover: prune_id="):][:30] + " chars=1-999999999999]", 0, 0},
	} {
		raw := jsonscan.AppendEscaped(nil, tt.text)
		for range 2 { // the second answer comes from the cache
			got, err := r.OmittedBytes(t.Context(), tt.tenant, raw)
			escaped := len(raw) * tt.want / len(tt.text)
			if err != nil || got < escaped-tt.within-1 || got > escaped+tt.within+1 {
				t.Errorf("%s: %d bytes, want %d: %v", name, got, escaped, err)
			}
		}
	}
}

// What a client would have cut by itself is not missing because of the gateway.
func TestOmittedBytesOfAClientThatCuts(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 150, 140
	text := strings.Repeat("x", 100_000)
	body := []byte(`{"result":{"content":[{"type":"text","text":"` + text + `"}]}}`)
	at := strings.Index(string(body), text)
	str := jsonscan.Str{Span: jsonscan.Span{Start: at, End: at + len(text)}, Chars: len(text)}
	s := r.Shrink(t.Context(), ShrinkRequest{Tenant: "t", Origin: pruned, Body: body, Strings: []jsonscan.Str{str}, Limit: clients.Result{Bytes: 10_000}}, p)
	if len(s.Edits) != 1 {
		t.Fatalf("%+v", s)
	}
	shown := text[:s.Edits[0].Start-at] + string(jsonscan.AppendDecoded(nil, s.Edits[0].Text)) + text[s.Edits[0].End-at:]
	raw := jsonscan.AppendEscaped(nil, shown)
	if got, err := r.OmittedBytes(t.Context(), "t", raw); err != nil || got < 9000 || got > 10_000 {
		t.Errorf("%d bytes, want at most 10000 less what is shown: %v", got, err)
	}
	if known, err := r.isShortened(t.Context(), "t", jsonscan.DecodedChunks(raw, partSize)); !known || err != nil {
		t.Errorf("the text is not recognised: %v", err)
	}
	// A text that the pruner returned to whoever sent the original lacks nothing that would have been sent.
	id, err := r.StoreText(t.Context(), "t", text, pruned)
	if err != nil {
		t.Fatal(err)
	}
	const made = "xx [lines 2-9 left out]"
	if err := r.MarkShortened(t.Context(), "t", id, made); err != nil {
		t.Fatal(err)
	}
	if got, err := r.OmittedBytes(t.Context(), "t", []byte(made)); got != 0 || err != nil {
		t.Errorf("%d bytes of a pruned text: %v", got, err)
	}
}
