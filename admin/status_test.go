package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/meter"
)

// Every list of the status is an array, and a time that is not known is left out, so that a reader need not
// expect null.
func TestStatusOfAnEmptyGateway(t *testing.T) {
	want := admin.Status{
		Version: "v1", Listeners: []admin.Listener{}, Clients: []admin.Client{},
		Servers: []admin.Server{{ID: "files", State: "starting", LastError: "<&>"}},
	}
	mux := http.NewServeMux()
	admin.Routes(mux, http.NotFoundHandler(), func() meter.Savings { return meter.Savings{Since: time.Now()} },
		func(*http.Request) admin.Status { return want }, func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusTeapot) })
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/api/v1/status", nil))
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "application/json" {
		t.Fatal(rec.Code, err)
	}
	server := got["servers"].([]any)[0].(map[string]any)
	for _, key := range []string{"since", "last_error_at", "next_attempt"} {
		if server[key] != nil {
			t.Errorf("%s is %v", key, server[key])
		}
	}
	if server["last_error"] != "<&>" || got["clients"] == nil || got["listeners"] == nil {
		t.Errorf("%v", got)
	}
	rec = httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/api/v1/status", nil))
	if rec.Code == http.StatusOK {
		t.Error("POST is served")
	}
}
