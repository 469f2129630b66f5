package meter_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/meter"
)

func scrape(t *testing.T, m *meter.Meter) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: status %d: %s", w.Code, w.Body)
	}
	return "\n" + w.Body.String()
}

// checkLines checks that a scrape contains these whole lines.
func checkLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the scrape lacks %q", line)
		}
	}
}

func TestExposition(t *testing.T) {
	m := meter.New("v1.2.3", func() (meter.StoreStats, bool) { return meter.StoreStats{Items: 7, Bytes: 4096}, true })
	m.AddServer("fs")
	m.AddServer("idle")
	done := m.StartCall("fs")
	checkLines(t, scrape(t, m), "ctxgate_calls_in_flight 1")
	done("ok")
	m.StartCall("fs")("timeout")
	m.CountReply("fs", meter.ReplyStats{BytesIn: 1000, BytesOut: 300, CharsCut: 700, Kept: 2, Whole: 1, Lost: 3})
	m.CountReply("fs", meter.ReplyStats{BytesIn: 10, BytesOut: 10})
	m.CountReply("fs", meter.ReplyStats{BytesIn: 10, BytesOut: 10, Whole: 4})
	text := scrape(t, m)
	checkLines(t, text,
		"ctxgate_calls_in_flight 0",
		`ctxgate_call_duration_seconds_count{outcome="ok",server="fs"} 1`,
		`ctxgate_call_duration_seconds_count{outcome="timeout",server="fs"} 1`,
		`ctxgate_call_duration_seconds_bucket{outcome="ok",server="fs",le="+Inf"} 1`,
		`ctxgate_reply_bytes_in_total{server="fs"} 1020`,
		`ctxgate_reply_bytes_out_total{server="fs"} 320`,
		`ctxgate_chars_cut_total{server="fs"} 700`,
		`ctxgate_originals_kept_total{server="fs"} 2`,
		`ctxgate_sent_whole_total{server="fs"} 5`,
		`ctxgate_unrecoverable_total{server="fs"} 3`,
		`ctxgate_build_info{version="v1.2.3"} 1`,
		"ctxgate_store_up 1", "ctxgate_store_items 7", "ctxgate_store_bytes 4096",
	)
	for _, name := range []string{"reply_bytes_in", "reply_bytes_out", "chars_cut", "originals_kept", "sent_whole", "unrecoverable"} {
		checkLines(t, text, "ctxgate_"+name+`_total{server="idle"} 0`)
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("the scrape lacks %s", name)
		}
	}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE ctxgate_"); ok && !strings.Contains(text, "# HELP ctxgate_"+strings.Fields(name)[0]+" ") {
			t.Errorf("ctxgate_%s has no help", name)
		}
	}
}

// A store that does not answer is reported as down, without size metrics: zero would be wrong.
func TestStoreDown(t *testing.T) {
	m := meter.New("v", func() (meter.StoreStats, bool) { return meter.StoreStats{Items: 9}, false })
	text := scrape(t, m)
	checkLines(t, text, "ctxgate_store_up 0")
	for _, name := range []string{"\nctxgate_store_items ", "\nctxgate_store_bytes "} {
		if strings.Contains(text, name) {
			t.Errorf("%s is reported although the store is down", strings.TrimSpace(name))
		}
	}
}
