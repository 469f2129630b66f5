package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/secret"
)

func TestEncodeAllFields(t *testing.T) {
	e := Event{
		Time: time.Date(2026, 11, 16, 9, 30, 0, 123456789, time.UTC), Kind: KindCall, Stage: StageEnd,
		Tenant: "acme", Subject: "ann", Issuer: "https://idp", Credential: "oidc", Remote: "192.0.2.1",
		Method: "tools/call", Server: "files", Tool: "read", Resource: "file:///a", Prompt: "p", Model: "m",
		Decision: "allow", Rule: "r1", Reason: "why", Outcome: "ok", BytesIn: 1, BytesOut: 2, CharsCut: 3,
		IDs: []string{"prn_1", "prn_2"}, Request: "7", Count: 4, Duration: 5 * time.Microsecond,
	}
	got := string(appendEvent(nil, &e))
	want := `"time":"2026-11-16T09:30:00.123456Z","event":"call","stage":"end","tenant":"acme","subject":"ann","issuer":"https://idp",` +
		`"credential":"oidc","remote":"192.0.2.1","method":"tools/call","server":"files","tool":"read","prompt":"p","model":"m",` +
		`"decision":"allow","rule":"r1","reason":"why","outcome":"ok","request":"7","resource":"file:///a",` +
		`"bytes_in":1,"bytes_out":2,"chars_cut":3,"count":4,"microseconds":5,"ids":["prn_1","prn_2"]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(appendEvent(nil, &Event{Kind: "k"})); strings.Count(got, ",") != 1 {
		t.Errorf("empty fields are written: %s", got)
	}
	many := make([]string, maxIDs+3)
	if got := string(appendIDs(nil, many)); strings.Count(got, `""`) != maxIDs || !strings.HasSuffix(got, `],"ids_more":3`) {
		t.Error(got)
	}
}

func TestBareURI(t *testing.T) {
	for uri, want := range map[string]string{
		"file:///notes/a.md":                   "file:///notes/a.md",
		"https://user:pass@host/p/x?token=1#f": "https://host/p/x",
		"https://host?token=1":                 "https://host",
		"https://a@b@host/x@y":                 "https://host/x@y",
		"plain#x":                              "plain",
		"mailto:ann@example.com":               "mailto:ann@example.com",
	} {
		if got := bareURI(uri); got != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
}

func TestTextIsInert(t *testing.T) {
	for in, want := range map[string]string{
		"plain":           `"plain"`,
		"a\"b\\c":         `"a\"b\\c"`,
		"\x1b[31mred\r\n": `"\u001b[31mred\u000d\u000a"`,
		"\u202eevil":      `"\u202eevil"`,
		"zero\u200bwidth": `"zero\u200bwidth"`,
		"tag\U000e0041":   `"tag\udb40\udc41"`,
		"\x7f\x80":        `"\u007f\ufffd"`,
		"line\u2028sep":   `"line\u2028sep"`,
		"größer, 漢字, 🙂":   `"größer, 漢字, 🙂"`,
		"<script>&":       `"<script>&"`,
	} {
		if got := string(appendText(nil, in, maxText)); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestTextHasNoSecret(t *testing.T) {
	secret.Register("canary-0123456789")
	for _, in := range []string{
		"x canary-0123456789 y", "ü canary-0123456789 y",
		strings.Repeat("a", maxText-5) + "canary-0123456789", strings.Repeat("a", 2*maxText-5) + "canary-0123456789" + strings.Repeat("b", maxText),
		"canary-0123456789" + strings.Repeat("a", 10*maxText),
	} {
		if got := string(appendText(nil, in, maxText)); strings.Contains(got, "canary") {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// Whatever the text is, the string is JSON of bounded length that decodes to the start of the text.
func TestTextLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.StringN(200, 600, -1), rapid.StringOfN(rapid.RuneFrom([]rune{'a', 0, '\U000e0041', '漢'}), 0, 500, -1)).Draw(t, "text")
		if rapid.Bool().Draw(t, "invalid") {
			in += "\xff\xfe"
		}
		got := appendText(nil, in, maxText)
		var out string
		if err := json.Unmarshal(got, &out); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if len(got) > maxText+16 || !utf8.Valid(got) {
			t.Fatalf("%d bytes", len(got))
		}
		whole := strings.ToValidUTF8(in, "\ufffd")
		if cut, ok := strings.CutSuffix(out, "…"); ok && !strings.HasPrefix(strings.ReplaceAll(whole, "\ufffd", ""), strings.ReplaceAll(cut, "\ufffd", "")) {
			t.Fatalf("%q is not the start of %q", cut, whole)
		}
	})
}
