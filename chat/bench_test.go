package chat_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/upstream"
)

// BenchmarkProxy compares the LLM proxy with the standard library's reverse proxy.
func BenchmarkProxy(b *testing.B) {
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, wires["completions"].reply)
	}))
	defer f.Close()
	transport := upstream.NewTransport()
	defer transport.CloseIdleConnections()
	target, _ := url.Parse(f.URL)
	bare := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	cfg := chat.Settings{Chat: chat.Default(), HTTP: front.Default().HTTP}
	cfg.Chat.Providers = []chat.Provider{providerConfig("p", "openai", f.URL)}
	proxy := chat.New(cfg, chat.Deps{Transport: transport, Meter: meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })})
	for size, messages := range map[string]int{"2KB": 4, "200KB": 400, "2MB": 4000} {
		body := `{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("some text\\n", 45)+`"},`, messages) + `{}]}`
		for name, h := range map[string]http.Handler{"bare": bare, "ctxgate": proxy.Handler(front.NewGuard("127.0.0.1:8000", front.HTTP{}))} {
			b.Run(size+"/"+name, func(b *testing.B) {
				srv := httptest.NewServer(h)
				defer srv.Close()
				b.SetBytes(int64(len(body)))
				b.SetParallelism(8)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						resp, err := srv.Client().Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			})
		}
	}
}
