package admin_test

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/meter"
)

// recordedSavings records two replies: one that saved 500, and the request that read the original
// back for 1900.
func recordedSavings() meter.Savings {
	m := meter.New("v", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
	e := meter.LedgerEntry{
		Tenant: "a", Provider: "p", Model: "=m", Rates: meter.Rates{Write: 1, Read: .1, Input: 3, Output: 15},
		Usage: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 200}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm,
		Cuts: []meter.ToolCut{{Tool: "read", Tokens: 5000}},
	}
	m.Charge(e)
	e.Round, e.PreviousOutput = 1, 30
	m.Charge(e)
	m.CountReply("files", meter.ReplyStats{CharsCut: 34_000, Kept: 2})
	m.CountReadBack(3400)
	m.Charge(meter.LedgerEntry{NotMasking: "6 tool turns so far, and the results of the last 8 stay whole", Tenant: "b", Provider: "p", Model: "n", Rates: meter.Rates{Write: 1.25, Read: .1}, Usage: meter.Tokens{Created: 2000}, SentTokens: 2000, OriginalTokens: 2000})
	return m.Savings()
}

func getSavings(t *testing.T, read func() meter.Savings, path string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	admin.Routes(mux, http.NotFoundHandler(), read, nil, func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadRequest)
	})
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestSavingsAsJSON(t *testing.T) {
	w := getSavings(t, recordedSavings, "/savings")
	var got struct {
		Since, Until time.Time
		Units        string
		Total        map[string]any
		Models       []map[string]any
		Tools        []map[string]any
		Hub          map[string]any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if got.Since.IsZero() || got.Until.Before(got.Since) || !strings.Contains(got.Units, "saved = unmasked - billed") {
		t.Errorf("got %v to %v, %q", got.Since, got.Until, got.Units)
	}
	for key, want := range map[string]float64{
		"requests": 3, "recovery_requests": 1, "fresh": 2000, "cached": 18000, "created": 2000, "created_1h": 0, "output": 400,
		"billed": 6300, "unmasked": 4900, "recovery": 1900, "saved": -1400,
	} {
		if got.Total[key] != want {
			t.Errorf("%s: got %v, want %v", key, got.Total[key], want)
		}
	}
	if len(got.Models) != 2 || got.Models[0]["tenant"] != "a" || got.Models[0]["saved"] != -1400.0 {
		t.Errorf("models: %v", got.Models)
	}
	if len(got.Tools) != 2 || got.Tools[0]["tool"] != "read" || got.Tools[0]["saved"] != 500.0 || got.Tools[1]["saved"] != -1900.0 {
		t.Errorf("tools: %v", got.Tools)
	}
	if h := got.Hub; h["texts_cut"] != 2.0 || h["tokens_cut_estimate"] != 10_000.0 || h["tokens_read_back_estimate"] != 1000.0 || !strings.HasPrefix(h["note"].(string), "estimate: tools only") {
		t.Errorf("hub: %v", h)
	}
	if got.Total["not_masking"] != "6 tool turns so far, and the results of the last 8 stay whole" || got.Models[0]["not_masking"] != nil {
		t.Errorf("not masking: %v, %v", got.Total["not_masking"], got.Models[0])
	}
	if p := got.Total["parts"].(map[string]any); p["masked"] != 500.0 || p["hub"] != 0.0 {
		t.Errorf("parts: %v", p)
	}
	for _, want := range []string{`"masked": 0.001500`, `"unmasked": 0.012750`, `"cold": {` + "\n" + `        "requests": 1,` + "\n" + `        "missed": 2000`, `"saved": -0.004650`, `"unpriced_requests": 1`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s lacks %s", w.Body, want)
		}
	}
}

func TestSavingsAsCSV(t *testing.T) {
	for path, want := range map[string]string{
		"/savings?format=csv": `tenant,provider,model,requests,recovery_requests,fresh,cached,created,created_1h,output,billed,unmasked,recovery,saved,unpriced_requests,` +
			`misses_cold,missed_cold,misses_expired,missed_expired,misses_client,missed_client,misses_ours,missed_ours,misses_other,missed_other,money_billed,money_saved,money_recovery,saved_hub,saved_shortened,saved_masked,saved_steps,saved_cache
a,p,'=m,2,1,2000,18000,0,0,400,3800,2400,1900,-1400,0,0,0,0,0,0,0,0,0,0,0,0.017400,-0.004650,0.006150,0,0,500,0,0
b,p,n,1,0,0,0,2000,0,0,2500,2500,0,0,1,1,2000,0,0,0,0,0,0,0,0,0.000000,0.000000,0.000000,0,0,0,0,0
`,
		"/savings?format=csv&by=tool": `tenant,provider,model,tool,results,cleared,saved,money_saved,saved_hub,saved_shortened,saved_masked,saved_steps,saved_cache
a,p,'=m,read,1,5000,500,0.001500,0,0,500,0,0
a,p,'=m,recover_text,0,0,-1900,-0.006150,0,0,0,0,0
`,
	} {
		w := getSavings(t, recordedSavings, path)
		if w.Body.String() != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") {
			t.Errorf("%s: got %s\nwant %s", path, w.Body, want)
		}
		if _, err := csv.NewReader(w.Body).ReadAll(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Without any requests the lists are empty, not missing; wrong query parameters are reported.
func TestSavingsOfNothing(t *testing.T) {
	none := func() meter.Savings { return meter.Savings{Since: time.Unix(0, 0)} }
	if w := getSavings(t, none, "/savings?format=json"); !strings.Contains(w.Body.String(), `"models": [],`) || !strings.Contains(w.Body.String(), `"tools": []`) {
		t.Errorf("got %s", w.Body)
	}
	for _, path := range []string{"/savings?format=xml", "/savings?format=csv&by=moon"} {
		if w := getSavings(t, none, path); w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}
