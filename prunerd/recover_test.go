package prunerd

import (
	"encoding/json"
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
		{false, []int{1, 2, 6, 7, 1, 1}, "one\n\none"},
		{false, []int{2, 2, 2, 2}, "\n"},
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

// P6: the two failures to the letter, and what is no range at all.
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

// I9: a few bytes of ranges cannot ask for any amount, and an original can always be had whole.
func TestI9RecoverIsBounded(t *testing.T) {
	s, _ := open(t, nil)
	text := noise(20_000, 7)
	id := s.mustPrune(t, text, "g", "docs", usual).PruneID
	var ends []int
	for range 100 {
		ends = append(ends, 1, 20_000)
	}
	_, err := s.Call(t.Context(), "t", "recover_text", recoverArgs(id, false, ends...))
	refused(t, "a hundred times all of it", err, "ranges")
	if got := s.mustRecover(t, id, false, ends[:10]...); len(got) != 5*len(text)+4 {
		t.Errorf("five times all of it: %d bytes", len(got))
	}
	large := strings.Repeat("x", maxRecover+1)
	all := wish{ranges: []recall.Range{{First: 1, Last: 1}}}
	if out, err := all.of([]byte(large)); err != nil || string(out) != large {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
