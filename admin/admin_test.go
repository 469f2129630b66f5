package admin_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/meter"
)

func TestValidate(t *testing.T) {
	for listen, want := range map[string]string{
		"":                     "[]",
		admin.Default().Listen: "[]",
		"0.0.0.0:1":            "[]",
		"8090":                 `[listen: "8090" is not an address such as 127.0.0.1:8000]`,
	} {
		if got := fmt.Sprint(admin.Config{Listen: listen}.Validate()); got != want {
			t.Errorf("%q: got %s, want %s", listen, got, want)
		}
	}
}

func TestRoutes(t *testing.T) {
	mux := http.NewServeMux()
	admin.Routes(mux, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
		func() meter.Savings { return meter.Savings{} }, nil, func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusNotFound) })
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/metrics", 200}, {"HEAD", "/metrics", 200}, {"POST", "/metrics", 404}, {"GET", "/", 404},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != tt.status {
			t.Errorf("%s %s: got %d, want %d", tt.method, tt.path, w.Code, tt.status)
		}
	}
}
