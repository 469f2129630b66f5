package prunerd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/recall"
)

// P6: ranges in the order asked, clamped to the last line, numbered where asked.
func TestP6Recover(t *testing.T) {
	s, _ := open(t, nil)
	text := "one\n\n three \r\nfür\n"
	id := s.mustPrune(t, text, "g", "docs", usual).PruneID
	for _, tt := range []struct {
		number bool
		ends   []int
		want   string
	}{
		{false, []int{1, 5}, text},
		{false, []int{1, 1}, "one"},
		{false, []int{2, 2}, ""},
		{false, []int{2, 3}, "\n three \r"},
		{false, []int{5, 5}, ""},
		{false, []int{4, 5}, "für\n"},
		{false, []int{1, 99}, text},
		{false, []int{5, 1 << 40}, ""},
		{false, []int{6, 9}, ""},
		{false, []int{4, 4, 1, 1}, "für\none"},
		{false, []int{1, 2, 6, 7, 1, 1}, "one\n"}, // a line that is asked for twice is given once, where it is first asked for
		{false, []int{2, 2, 2, 2}, ""},
		{false, []int{3, 4, 1, 9}, " three \r\nfür\none\n\n"},
		{true, []int{3, 4, 1, 9}, "3│  three \r\n4│ für\n1│ one\n2│ \n5│ "},
		{false, []int{}, ""},
		{true, []int{1, 9}, "1│ one\n2│ \n3│  three \r\n4│ für\n5│ "},
		{true, []int{4, 4, 2, 2}, "4│ für\n2│ "},
		{true, []int{7, 8}, ""},
	} {
		if got := s.mustRecover(t, id, tt.number, tt.ends...); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.ends, got, tt.want)
		}
	}
	// The alias does the same, and ids are read as people write them.
	raw, err := s.Call(t.Context(), "t", "recover_range", recoverArgs(" "+strings.ToUpper(id), true, 1, 2, 4, 4))
	if err != nil {
		t.Fatal(err)
	}
	var got json.RawMessage
	result(t, raw, &got)
	want := `{"raw_text":"1│ one\n2│ \n4│ für","metadata":{"prune_id":"` + id + `","ranges":[{"start_line":1,"end_line":2},{"start_line":4,"end_line":4}],"line_numbering":"original"}}`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// P6: the two errors, to the letter, and invalid ranges.
func TestP6Failures(t *testing.T) {
	s, store := open(t, nil)
	id := s.mustPrune(t, "a\nb\nc", "g", "docs", usual).PruneID
	const gone = "prn_00000000000000000000000000"
	for _, tt := range []struct {
		id, ranges, name string
		code             int
	}{
		{gone, `[{"start_line":1,"end_line":2}]`, "prune_id_not_found", -32004},
		{"prn_does_not_exist", `[]`, "prune_id_not_found", -32004},
		{"", `[]`, "prune_id_not_found", -32004},
		{gone, `[{"start_line":3,"end_line":2}]`, "prune_id_not_found", -32004},
		{id, `[{"start_line":3,"end_line":2}]`, "invalid_range", -32005},
		{id, `[{"start_line":0,"end_line":2}]`, "invalid_range", -32005},
		{id, `[{"start_line":-1,"end_line":-1}]`, "invalid_range", -32005},
		{id, `[{"start_line":1,"end_line":2},{"start_line":2,"end_line":0}]`, "invalid_range", -32005},
		{id, `[{"start_line":1e999,"end_line":2}]`, "invalid_range", -32005},
	} {
		_, err := s.Call(t.Context(), "t", "recover_text", []byte(`{"prune_id":"`+tt.id+`","include_line_numbers":false,"ranges":`+tt.ranges+`}`))
		e := failure(t, err)
		if want := `{"code":"` + tt.name + `","prune_id":"` + tt.id + `"}`; e.Code != tt.code || e.Message != tt.name || string(e.Data) != want {
			t.Errorf("%s %s: got %d %s %s, want %d %s", tt.id, tt.ranges, e.Code, e.Message, e.Data, tt.code, want)
		}
	}
	for ranges, argument := range map[string]string{
		`{}`: "ranges", `"1-2"`: "ranges", `[1]`: "ranges[0]", `[{"start_line":1}]`: "ranges[0].end_line",
		`[{"start_line":1,"end_line":2},{"start_line":1,"end_line":"2"}]`: "ranges[1].end_line",
		`[{"start_line":1.5,"end_line":2}]`:                               "ranges[0].start_line",
		`[{"start_line":1,"end_line":2,"x":1}]`:                           "ranges[0].x",
	} {
		args := `{"prune_id":"` + id + `","include_line_numbers":false,"ranges":` + ranges + `}`
		_, err := s.Call(t.Context(), "t", "recover_text", []byte(args))
		refused(t, args, err, argument)
	}
	for args, argument := range map[string]string{
		`{"ranges":[],"include_line_numbers":true}`:                              "prune_id",
		`{"prune_id":7,"ranges":[],"include_line_numbers":true}`:                 "prune_id",
		`{"prune_id":"x","include_line_numbers":true}`:                           "ranges",
		`{"prune_id":"x","ranges":[]}`:                                           "include_line_numbers",
		`{"prune_id":"x","ranges":[],"include_line_numbers":"true"}`:             "include_line_numbers",
		`{"prune_id":"x","ranges":[],"include_line_numbers":true,"pattern":"x"}`: "pattern",
	} {
		_, err := s.Call(t.Context(), "t", "recover_text", []byte(args))
		refused(t, args, err, argument)
	}
	store.down.Store(true)
	_, err := s.Call(t.Context(), "t", "recover_text", recoverArgs(id, false, 1, 2))
	if e := failure(t, err); e.Code != -32603 || e.Message != "recovery_unavailable" {
		t.Errorf("the store is down: %d %s", e.Code, e.Message)
	}
}

// I9: many ranges cannot make the reply arbitrarily large: each line is returned once, and the reply is cut
// at the limit. Metadata says how to read on, which gives the rest.
func TestI9RecoverIsBounded(t *testing.T) {
	s, _ := open(t, nil)
	text := noise(20_000, 7)
	id := s.mustPrune(t, text, "g", "docs", usual).PruneID
	var ends []int
	for range 1500 {
		ends = append(ends, 1, 20_000)
	}
	if got := s.mustRecover(t, id, false, ends...); got != text {
		t.Errorf("1,500 times all of it: %d bytes, want %d", len(got), len(text))
	}
	_, err := s.Call(t.Context(), "t", "recover_text", recoverArgs(id, false, slices.Repeat([]int{1, 2}, 2001)...))
	refused(t, "2,001 ranges", err, "ranges")

	large := noise(200_000, 7) // 13 MB
	id, err = s.deps.Recall.StoreText(t.Context(), "t", large, Origin)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for next := []int{1, 200_000}; next != nil; {
		raw, err := s.Call(t.Context(), "t", "recover_text", recoverArgs(id, false, next...))
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Text     string `json:"raw_text"`
			Metadata struct {
				Truncated bool   `json:"truncated"`
				Note      string `json:"note"`
				Next      *struct {
					First int `json:"start_line"`
					Last  int `json:"end_line"`
				} `json:"next_range"`
			} `json:"metadata"`
		}
		result(t, raw, &d)
		limit := int(recall.Default().ReadBytes)
		if len(d.Text) > limit || d.Metadata.Truncated != (d.Metadata.Next != nil) {
			t.Fatalf("%d bytes, %+v", len(d.Text), d.Metadata)
		}
		all, next = append(all, d.Text), nil
		if d.Metadata.Truncated {
			next = []int{d.Metadata.Next.First, d.Metadata.Next.Last}
			if len(d.Text) < limit-1000 || !strings.Contains(d.Metadata.Note, "ask for the rest with prune_id="+id) {
				t.Fatalf("%d bytes, %+v", len(d.Text), d.Metadata)
			}
		}
	}
	if len(all) != 2 || strings.Join(all, "\n") != large {
		t.Errorf("%d parts", len(all))
	}
}
