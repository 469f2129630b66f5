package peers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// oauthConfig is the gateway's OAuth configuration for an auth scenario: the suite's metadata document, and
// the client that the scenario may have registered.
func oauthConfig(home string) (map[string]string, error) {
	given := map[string]string{"client_metadata_url": "https://conformance-test.local/client-metadata.json"}
	var scenario struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	// Most scenarios have no context.
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &scenario)
	if scenario.ID == "" {
		return given, nil
	}
	file := filepath.Join(home, "client-secret")
	given["client_id"], given["client_secret"] = scenario.ID, "file:"+file
	return given, os.WriteFile(file, []byte(scenario.Secret), 0o600)
}

var invitationPattern = regexp.MustCompile(`open this address[^\n]* address"?[=:]"?([^\s"]+)`)

// openInvitations opens every authorization URL in the gateway's log, like a user. The suite's authorization
// server consents at once and redirects to the gateway.
func openInvitations(ctx context.Context, log string) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	opened := 0
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		output, _ := os.ReadFile(log) // retried if it fails
		invitations := invitationPattern.FindAllSubmatch(output, -1)
		for ; opened < len(invitations); opened++ {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(invitations[opened][1]), nil)
			if err != nil {
				continue
			}
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
}

// Each URL is opened once and redirects are followed.
func TestBrowserDirect(t *testing.T) {
	arrived := make(chan string, 4)
	mux := http.NewServeMux()
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/oauth/callback?code=c&state="+r.URL.Query().Get("state"), http.StatusFound)
	})
	mux.HandleFunc("/oauth/callback", func(_ http.ResponseWriter, r *http.Request) { arrived <- r.URL.Query().Encode() })
	web := httptest.NewServer(mux)
	defer web.Close()
	log := filepath.Join(t.TempDir(), "log")
	line := `time=x level=WARN msg="open this address to let ctxgate use a server" server=up address="` + web.URL + `/authorize?state=s&x=y"` + "\n"
	if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	openInvitations(ctx, log)
	if got := len(arrived); got != 1 {
		t.Fatalf("the callback was called %d times", got)
	}
	if got := <-arrived; got != "code=c&state=s" {
		t.Errorf("the callback got %s", got)
	}
}
