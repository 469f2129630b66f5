package recall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
)

// jsonPolicy is the default with json = true and a lower limit.
func jsonPolicy() Policy {
	p := DefaultPolicy()
	p.JSON, p.MaxChars, p.HeadChars, p.TailChars = true, 1000, 500, 500
	return p
}

// reply is a tool result as a client decodes it.
type reply struct {
	Result struct {
		Content           []struct{ Type, Text string }
		StructuredContent json.RawMessage
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
}

func toolReply(text, structured, rest string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":` + string(quote(text)) + `}],"structuredContent":` + structured + rest + `}}`)
}

func read(t testing.TB, body []byte) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r
}

func tree(t testing.TB, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

type issue struct {
	ID    int    `json:"id"`
	Title string `json:"title"`
	Open  bool   `json:"open"`
}

func issues(n int) string {
	var list []issue
	for i := range n {
		list = append(list, issue{i, fmt.Sprintf("Issue «%d» of the list", i), i%2 == 0})
	}
	b, _ := json.Marshal(map[string]any{"total": n, "issues": list})
	return string(b)
}

func indented(text string) string {
	var b bytes.Buffer
	_ = json.Indent(&b, []byte(text), "", "  ")
	return b.String()
}

// ascii escapes a text as Python's json module does.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

var arrayMarker = regexp.MustCompile(`^\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=(\d+) elements=(\d+) dropped=(\d+)\] \.\.\. \[recover: prune_id=(prn_\w{26}) chars=(\d+)-(\d+)\]$`)

// G+4: the same text in content and in structuredContent is cut alike, under one id, however
// either is escaped, with json = true or without.
func TestGPlus4SameTextSameCut(t *testing.T) {
	text := strings.Repeat("Ligne d’été: \"C:\\tmp\"\n", 300)
	for name, spelled := range map[string]string{"alike": text, "json": issues(300)} {
		for _, policy := range []Policy{DefaultPolicy(), jsonPolicy()} {
			t.Run(fmt.Sprintf("%s, json=%v", name, policy.JSON), func(t *testing.T) {
				r, _ := open(t, nil)
				raw := string(quote(spelled))
				body := toolReply(spelled, `{"n":1.50,"content":`+ascii(raw)+`}`, "")
				out, s := shrink(t, r, "t", body, policy)
				got := read(t, out)
				var structured struct{ Content string }
				if err := json.Unmarshal(got.Result.StructuredContent, &structured); err != nil {
					t.Fatal(err)
				}
				if structured.Content != got.Result.Content[0].Text || s.Recoverable != 2 {
					t.Errorf("%+v\n%.300q\n%.300q", s, structured.Content, got.Result.Content[0].Text)
				}
				if back, err := fetch(t, r, "t", idIn(t, structured.Content)); err != nil || back != spelled {
					t.Errorf("%d bytes of %d, %v", len(back), len(spelled), err)
				}
				if !bytes.Contains(out, []byte(`{"n":1.50,`)) || bytes.Contains(out, []byte("_meta")) {
					t.Errorf("%.200s", out)
				}
			})
		}
	}
}

// G+4: structuredContent and the text that serialises it lose the same elements, whatever their white
// space and escapes. The list keeps its type: every element of structuredContent is still an issue, and
// every marker leads back to the text.
func TestGPlus4CopiesLoseTheSame(t *testing.T) {
	data := issues(200)
	for name, tt := range map[string]struct{ text, structured string }{
		"compact":        {data, data},
		"indented text":  {indented(data), data},
		"indented value": {data, indented(data)},
		"escaped text":   {ascii(indented(data)), data},
		"escaped value":  {data, ascii(data)},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := open(t, nil)
			out, s := shrink(t, r, "t", toolReply(tt.text, tt.structured, ""), jsonPolicy())
			got := read(t, out)
			if n := utf8.RuneCountInString(got.Result.Content[0].Text); n > 1000 || s.Recoverable != 1 {
				t.Fatalf("%d characters, %+v", n, s)
			}
			var text struct{ Issues []any }
			var typed struct {
				Total  int
				Issues []issue
			}
			d := json.NewDecoder(bytes.NewReader(got.Result.StructuredContent))
			d.DisallowUnknownFields()
			if err := d.Decode(&typed); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(got.Result.Content[0].Text), &text); err != nil {
				t.Fatal(err)
			}
			marks := 0
			for i, e := range text.Issues {
				if m, ok := e.(string); ok {
					marks++
					if typed.Issues[i].Title != m {
						t.Errorf("element %d is %+v, want it to carry %q", i, typed.Issues[i], m)
					}
					checkGap(t, r, m, tt.text)
				} else if want := (issue{int(e.(map[string]any)["id"].(float64)), e.(map[string]any)["title"].(string), e.(map[string]any)["open"].(bool)}); typed.Issues[i] != want {
					t.Errorf("element %d is %+v and %+v", i, typed.Issues[i], want)
				}
			}
			if marks != 1 || len(text.Issues) != len(typed.Issues) || typed.Total != 200 {
				t.Errorf("%d marks, %d and %d elements", marks, len(text.Issues), len(typed.Issues))
			}
			if again, s := shrink(t, r, "t", out, jsonPolicy()); !bytes.Equal(again, out) || s.Recoverable != 0 {
				t.Errorf("it was cut a second time: %+v", s)
			}
		})
	}
}

// checkGap checks that what a marker names can be read back and has as many elements as it says.
func checkGap(t testing.TB, r *Recall, marker, original string) {
	t.Helper()
	m := arrayMarker.FindStringSubmatch(marker)
	if m == nil {
		t.Fatalf("%q is no marker", marker)
	}
	back, err := fetch(t, r, "t", m[4])
	if err != nil || back != original {
		t.Fatalf("%d bytes of %d, %v", len(back), len(original), err)
	}
	var from, to, dropped int
	_, _ = fmt.Sscan(strings.Join(m[5:], " ")+" "+m[3], &from, &to, &dropped)
	missing := string([]rune(back)[from-1 : to])
	if list := tree(t, []byte("["+missing+"]")).([]any); len(list) != dropped {
		t.Errorf("%d elements are missing, the marker says %d", len(list), dropped)
	}
}

// G+4: a list of numbers cannot hold a marker: structuredContent loses the elements that the text
// loses, and _meta says so.
func TestGPlus4NumbersStayNumbers(t *testing.T) {
	var list []int
	for i := range 2000 {
		list = append(list, i*i)
	}
	data, _ := json.Marshal(map[string]any{"series": list})
	r, _ := open(t, nil)
	out, _ := shrink(t, r, "t", toolReply(string(data), string(data), ""), jsonPolicy())
	got := read(t, out)
	var typed struct{ Series []int }
	var text struct{ Series []any }
	if err := json.Unmarshal(got.Result.StructuredContent, &typed); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got.Result.Content[0].Text), &text); err != nil {
		t.Fatal(err)
	}
	if len(typed.Series) != len(text.Series)-1 || typed.Series[0] != 0 || typed.Series[len(typed.Series)-1] != 1999*1999 {
		t.Errorf("%d and %d elements", len(typed.Series), len(text.Series))
	}
	n := metaCutIn(t, got)
	if n.Path != "/series" || n.Elements != 2000 || n.Dropped != 2000-len(typed.Series) || n.OriginalChars != len(data)-len(`{"series":}`) {
		t.Errorf("%+v", n)
	}
	checkGap(t, r, fmt.Sprintf("... [KIMI_PROXY_OBSERVATION_MASKED original_chars=%d elements=%d dropped=%d] ... [recover: prune_id=%s chars=%d-%d]",
		n.OriginalChars, n.Elements, n.Dropped, n.PruneID, n.Chars[0], n.Chars[1]), string(data))
}

type note struct {
	Path              string
	OriginalChars     int `json:"original_chars"`
	Elements, Dropped int
	PruneID           string `json:"prune_id"`
	Chars             [2]int
}

func metaCutIn(t testing.TB, r reply) note {
	t.Helper()
	var notes []note
	if err := json.Unmarshal(r.Result.Meta[metaKey], &notes); err != nil || len(notes) == 0 {
		t.Fatalf("%v: %s", err, r.Result.Meta)
	}
	return notes[0]
}

// G+4: structuredContent that content does not repeat is stored as an original of its own.
func TestGPlus4StructuredContentAlone(t *testing.T) {
	data := indented(issues(200))
	for _, content := range []string{"200 issues", strings.Repeat("a summary, and a long one\n", 200)} {
		r, _ := open(t, nil)
		out, s := shrink(t, r, "t", toolReply(content, data, ""), jsonPolicy())
		got := read(t, out)
		if n := utf8.RuneCount(got.Result.StructuredContent); n > 1200 || s.Err != nil {
			t.Errorf("%d characters, %+v", n, s)
		}
		if back, err := fetch(t, r, "t", metaCutIn(t, got).PruneID); err != nil || back != data {
			t.Errorf("%d bytes of %d, %v", len(back), len(data), err)
		}
		if again, _ := shrink(t, r, "t", out, jsonPolicy()); !bytes.Equal(again, out) {
			t.Error("it was cut a second time")
		}
	}
}

// G+4: if the text that serialises structuredContent is short enough to stay, both stay whole.
func TestGPlus4WholeTextWholeValue(t *testing.T) {
	data := issues(15)
	value := indented(data)
	if len(data) > 1000 || len(value) < 1000 {
		t.Fatal(len(data), len(value))
	}
	r, _ := open(t, nil)
	body := toolReply(data, value, "")
	if out, s := shrink(t, r, "t", body, jsonPolicy()); !bytes.Equal(out, body) || s.Edits != nil {
		t.Errorf("%+v", s)
	}
}

// G3: with json = false a JSON text is a string like any other, and structuredContent, whose
// strings are short, is not touched.
func TestGPlus4OffIsExactlyG3(t *testing.T) {
	data := issues(300)
	p := jsonPolicy()
	p.JSON = false
	r, _ := open(t, nil)
	out, _ := shrink(t, r, "t", toolReply(data, data, ""), p)
	got := read(t, out)
	if string(got.Result.StructuredContent) != data || !strings.HasPrefix(got.Result.Content[0].Text, data[:400]) ||
		!strings.Contains(got.Result.Content[0].Text, " head=500 tail=500] ...\n[recover: ") {
		t.Errorf("%.300s", out)
	}
}

// G+4: _meta is extended, never replaced; if it is not an object, structuredContent stays whole.
func TestGPlus4MetaIsExtended(t *testing.T) {
	data := issues(200)
	for meta, want := range map[string]int{
		``: 1, `,"_meta":{}`: 1, `,"_meta": { "a/b" : [1.50] }`: 2,
		`,"_meta":{"ctxgate/cut":[],"x":1}`: 2, `,"_meta":{"ctxgate/cut":[ {"path":""} ]}`: 1,
		`,"_meta":null`: 0, `,"_meta":{"ctxgate/cut":7}`: 1,
	} {
		for _, front := range []bool{false, true} {
			r, _ := open(t, nil)
			body := toolReply(data, data, meta)
			if front {
				body = bytes.Replace(body, []byte(meta), nil, 1)
				body = bytes.Replace(body, []byte(`{"content"`), []byte("{"+strings.TrimPrefix(meta+",", ",")+`"content"`), 1)
				body = bytes.Replace(body, []byte(`{,`), []byte(`{`), 1)
			}
			out, _ := shrink(t, r, "t", body, jsonPolicy())
			got := read(t, out)
			if len(got.Result.Meta) != want || bytes.Count(out, []byte(metaKey)) > 1 {
				t.Errorf("%s: %s", meta, got.Result.Meta)
			}
			cut := string(got.Result.StructuredContent) != data
			if placed := bytes.Contains(out, []byte(`"path":"/issues"`)); placed != cut || cut != (meta != `,"_meta":null` && !strings.Contains(meta, "7")) {
				t.Errorf("%s: cut %v, noted %v", meta, cut, placed)
			}
		}
	}
}

// G+2, I1: when the original cannot be stored, both copies stay whole; over the hard limit both are cut
// for good.
func TestGPlus4StoreRefuses(t *testing.T) {
	r, driver := open(t, nil)
	driver.refuse.Store(true)
	data := issues(300)
	body := toolReply(data, data, "")
	if out, s := shrink(t, r, "t", body, jsonPolicy()); !bytes.Equal(out, body) || s.PassedWhole != 1 || s.Err == nil {
		t.Errorf("%+v", s)
	}
	p := jsonPolicy()
	p.HardLimit = 6000
	out, s := shrink(t, r, "t", body, p)
	if s.Unrecoverable != 1 || len(out) > 3000 || bytes.Contains(out, []byte("prune_id")) {
		t.Errorf("%+v, %s", s, out)
	}
	tree(t, []byte(read(t, out).Result.Content[0].Text))
	off, _ := open(t, func(c *Config, _ *state.Config) { c.Enabled = false })
	if again, s := shrink(t, off, "t", body, p); s.Unrecoverable != 1 || !bytes.Equal(again, out) {
		t.Errorf("recall off: %+v", s)
	}
}

// G+1: a JSON text of many parts comes back byte-exact, and in the bare form no id is named.
func TestGPlus4LargeText(t *testing.T) {
	r, driver := open(t, nil)
	text := ascii(indented(issues(15_000)))
	body := quote(text)
	out, s := shrink(t, r, "t", body, jsonPolicy())
	got := unquote(t, out)
	if s.Recoverable != 1 || utf8.RuneCountInString(got) > 1000 {
		t.Fatalf("%+v, %d characters", s, utf8.RuneCountInString(got))
	}
	tree(t, []byte(got))
	if back, err := fetch(t, r, "t", idIn(t, got)); err != nil || back != text {
		t.Errorf("%d bytes of %d, %v", len(back), len(text), err)
	}
	puts := driver.puts.Load()
	if again, _ := shrink(t, r, "t", body, jsonPolicy()); !bytes.Equal(again, out) || driver.puts.Load() != puts {
		t.Errorf("shown again, it cost %d writes", driver.puts.Load()-puts)
	}
	p := jsonPolicy()
	p.RecoverLine = false
	if out, s := shrink(t, r, "t", body, p); s.Recoverable != 1 || strings.Contains(unquote(t, out), "recover") {
		t.Errorf("%+v, %s", s, out)
	}
}

// FuzzShrinkJSON: a reply stays JSON, values that were not cut stay the same, and a second run returns
// the same bytes.
func FuzzShrinkJSON(f *testing.F) {
	f.Add([]byte(issues(40)), []byte(issues(40)), []byte(`{"a":1}`))
	f.Add([]byte(indented(issues(40))), []byte(issues(40)), []byte(`{"ctxgate/cut":[]}`))
	f.Add([]byte("plain"), []byte(`[[`+strings.Repeat(`"a b c",1,`, 200)+`null],{}]`), []byte(`null`))
	f.Add([]byte(`{"x":"`+strings.Repeat("y", 2000)+`"}`), []byte(`{"x":"`+strings.Repeat(`\u0079`, 2000)+`"}`), []byte(`{}`))
	r, _ := open(f, nil)
	f.Fuzz(func(t *testing.T, text, structured, meta []byte) {
		if !utf8.Valid(text) {
			return
		}
		body := toolReply(string(text), string(structured), `,"_meta":`+string(meta))
		if !isStrictJSON(body) {
			return
		}
		out, s := shrink(t, r, "t", body, jsonPolicy())
		if !json.Valid(out) || s.PassedWhole+s.Unrecoverable != 0 || s.Err != nil {
			t.Fatalf("%+v\n%s\n%s", s, body, out)
		}
		if len(s.Edits) == 0 != bytes.Equal(out, body) {
			t.Fatalf("%d edits of\n%s", len(s.Edits), body)
		}
		if again, _ := shrink(t, r, "t", body, jsonPolicy()); !bytes.Equal(again, out) {
			t.Fatalf("not deterministic:\n%s\n%s", again, out)
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(meta, &members) != nil || !json.Valid(structured) {
			return
		}
		after := read(t, out)
		for key, value := range members {
			if key != metaKey && !reflect.DeepEqual(tree(t, value), tree(t, after.Result.Meta[key])) {
				t.Fatalf("_meta lost %s", key)
			}
		}
	})
}

// isStrictJSON says whether the scanner, which refuses more than encoding/json, accepts body.
func isStrictJSON(body []byte) bool {
	s := jsonscan.New(body, 0)
	_, err := s.Skip()
	return err == nil && s.End() == nil
}
