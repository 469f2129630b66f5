//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// newHTTP makes a client and what gives its connections back.
func newHTTP() (*http.Client, func()) {
	transport := &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

// freshHTTP makes a client that uses each connection once.
func freshHTTP() (*http.Client, func()) {
	transport := &http.Transport{DisableKeepAlives: true}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

// ownTool is the gateway's own, which it lists beside those of its servers.
const ownTool = "recover_text"

// toolPage is what a list of tools has to say.
type toolPage struct {
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Next *string `json:"nextCursor"`
	TTL  *int    `json:"ttlMs"`
	took time.Duration
}

func listPage(ctx context.Context, p peer, id int, cursor *string) (toolPage, error) {
	var page toolPage
	params := "{}"
	if cursor != nil {
		params = `{"cursor":` + quote(*cursor) + `}`
	}
	begin := time.Now()
	got, err := p.ask(ctx, ask{id: fmt.Sprint(id), method: "tools/list", params: params})
	if err != nil {
		return page, err
	}
	page.took = got.at.Sub(begin) // what comes after is our own reading
	if got.Result == nil {
		return page, fmt.Errorf("tools/list: HTTP %d %s", got.status, got.Error)
	}
	return page, json.Unmarshal(got.Result, &page)
}

// listing is the whole list, page by page.
type listing struct {
	names []string
	pages int
	took  time.Duration
}

// walkTools reads every page of the list.
func walkTools(ctx context.Context, p peer, id int) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var l listing
	var cursor *string
	for {
		page, err := listPage(ctx, p, id+l.pages, cursor)
		if err != nil {
			return l, err
		}
		l.pages++
		l.took += page.took
		for _, tool := range page.Tools {
			if tool.Name != ownTool {
				l.names = append(l.names, tool.Name)
			}
		}
		if cursor = page.Next; cursor == nil {
			return l, nil
		}
		if l.pages > 1000 {
			return l, fmt.Errorf("the list has no end")
		}
	}
}

// settled waits until the list has so many tools and has been told to whom it concerns, so that
// what is told later is news.
func settled(t *testing.T, p peer, tools int) {
	t.Helper()
	var l listing
	var err error
	if !within(20*time.Second, func() bool {
		l, err = walkTools(t.Context(), p, int(time.Now().UnixNano()))
		return err == nil && len(l.names) == tools
	}) {
		t.Fatalf("%d tools are listed, want %d: %v", len(l.names), tools, err)
	}
	time.Sleep(1200 * time.Millisecond)
}

// converse calls a tool that asks back. A legacy client is asked on the way; a modern one calls
// again with its answer.
func converse(ctx context.Context, p peer, tool, nonce string, id int) (echoed, error) {
	params := fmt.Sprintf(`{"name":%q,"arguments":{"nonce":%q,"tenant":"t"}}`, tool, nonce)
	for leg := range 3 {
		got, err := p.ask(ctx, ask{id: fmt.Sprint(id + leg), method: "tools/call", params: params})
		if err != nil {
			return echoed{}, err
		}
		var r struct {
			Type   string           `json:"resultType"`
			Inputs map[string]frame `json:"inputRequests"`
			State  *string          `json:"requestState"`
		}
		if err := json.Unmarshal(got.Result, &r); err != nil {
			return echoed{}, fmt.Errorf("%s: %s", tool, got.Error)
		}
		if r.Type != "input_required" {
			var e echoed
			return e, json.Unmarshal([]byte(textOf(got.frame)), &e)
		}
		replies := map[string]json.RawMessage{}
		for key, question := range r.Inputs {
			replies[key] = json.RawMessage(obliging(question))
		}
		params = into(params, `"inputResponses":`+toJSON(replies))
		if r.State != nil {
			params = into(params, `"requestState":`+quote(*r.State))
		}
	}
	return echoed{}, fmt.Errorf("%s asks without end", tool)
}
