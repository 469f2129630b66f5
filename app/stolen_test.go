package app

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// S17: what one caller got is of no use to another: neither in its tenant nor in another one.
func TestS17StolenHandles(t *testing.T) {
	up := newMatrixServer(t)
	r, a := startApp(t, load(t, t.TempDir(), server("fs", up.URL)+inMemory+matrixRules))
	a.hub.AwaitServers(t.Context())
	post := func(subject, path, session, body string) (int, http.Header, string) {
		t.Helper()
		req, _ := http.NewRequest(http.MethodPost, r.main+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer token-of-"+subject+"-0123456789")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header, string(b)
	}
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	for _, path := range []string{"/mcp", "/mcp/fs"} {
		_, head, _ := post("ann", path, "", initialize)
		session := head.Get("Mcp-Session-Id")
		if status, _, body := post("ann", path, session, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); status != http.StatusOK {
			t.Fatalf("ann's own session: %d %s", status, body)
		}
		for _, thief := range []string{"bob", "eve"} {
			for _, body := range []string{`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":3,"result":{}}`} {
				if status, _, reply := post(thief, path, session, body); status != http.StatusNotFound {
					t.Errorf("%s with ann's session at %s: %d %s", thief, path, status, reply)
				}
			}
			for _, method := range []string{http.MethodGet, http.MethodDelete} { // its stream, and its end
				req, _ := http.NewRequest(method, r.main+path, nil)
				req.Header.Set("Authorization", "Bearer token-of-"+thief+"-0123456789")
				req.Header.Set("Accept", "text/event-stream")
				req.Header.Set("Mcp-Session-Id", session)
				req.Header.Set("Last-Event-ID", "1")
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusNotFound {
					t.Errorf("%s %s of ann's session at %s: %d", thief, method, path, resp.StatusCode)
				}
			}
		}
	}
	// A task belongs to the caller whose call made it.
	relay := "/api/mcp-gateway/fs/rpc"
	if _, _, body := post("ann", relay, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`); !strings.Contains(body, "task-of-the-caller") {
		t.Fatal(body)
	}
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/list"} {
		ask := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"taskId":"task-of-the-caller"}}`, method)
		if _, _, body := post("ann", relay, "", ask); !strings.Contains(body, `"result"`) {
			t.Errorf("%s of ann's own task: %s", method, body)
		}
		guessed := strings.Replace(ask, "task-of-the-caller", "task-of-nobody", 1)
		for _, thief := range []string{"bob", "eve"} {
			_, _, stolen := post(thief, relay, "", ask)
			_, _, unknown := post(thief, relay, "", guessed)
			if strings.Contains(stolen, `"result"`) || stolen != strings.Replace(unknown, "task-of-nobody", "task-of-the-caller", 1) {
				t.Errorf("%s of ann's task by %s: %s, and of none: %s", method, thief, stolen, unknown)
			}
		}
	}
	_, head, _ := post("eve", "/mcp/fs", "", initialize)
	if _, _, body := post("eve", "/mcp/fs", head.Get("Mcp-Session-Id"), `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"task-of-the-caller"}}`); strings.Contains(body, `"result"`) {
		t.Errorf("eve got ann's task at /mcp/fs: %s", body)
	}
}
