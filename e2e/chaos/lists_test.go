//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// newHTTP returns a client and a function that closes its connections.
func newHTTP() (*http.Client, func()) {
	transport := &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

// freshHTTP returns a client that uses each connection once.
func freshHTTP() (*http.Client, func()) {
	transport := &http.Transport{DisableKeepAlives: true}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

// recoverTool is the gateway's own tool, listed beside its servers' tools.
const recoverTool = "recover_text"

// toolPage is a result of tools/list.
type toolPage struct {
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Next *string `json:"nextCursor"`
	TTL  *int    `json:"ttlMs"`
	took time.Duration
}

func listPage(ctx context.Context, p mcpclient.Client, id int, cursor *string) (toolPage, error) {
	var page toolPage
	params := "{}"
	if cursor != nil {
		params = `{"cursor":` + mcpwire.Quote(*cursor) + `}`
	}
	begin := time.Now()
	got, err := p.Call(ctx, mcpclient.Request{ID: fmt.Sprint(id), Method: "tools/list", Params: params})
	if err != nil {
		return page, err
	}
	page.took = got.At.Sub(begin) // without the time for decoding
	if got.Result == nil {
		return page, fmt.Errorf("tools/list: HTTP %d %s", got.Status, got.Error)
	}
	return page, json.Unmarshal(got.Result, &page)
}

// toolListing is the whole tool list.
type toolListing struct {
	names []string
	pages int
	took  time.Duration
}

// walkTools reads every page of the list.
func walkTools(ctx context.Context, p mcpclient.Client, id int) (toolListing, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var l toolListing
	var cursor *string
	for {
		page, err := listPage(ctx, p, id+l.pages, cursor)
		if err != nil {
			return l, err
		}
		l.pages++
		l.took += page.took
		for _, tool := range page.Tools {
			if tool.Name != recoverTool {
				l.names = append(l.names, tool.Name)
			}
		}
		if cursor = page.Next; cursor == nil {
			return l, nil
		}
		if l.pages > 1000 {
			return l, fmt.Errorf("the list has more than 1000 pages")
		}
	}
}

// waitForTools waits until the list has the given number of tools and all change notifications for it are
// sent, so that later ones are about later changes.
func waitForTools(t *testing.T, p mcpclient.Client, tools int) {
	t.Helper()
	var l toolListing
	var err error
	if !wait.True(20*time.Second, func() bool {
		l, err = walkTools(t.Context(), p, int(time.Now().UnixNano()))
		return err == nil && len(l.names) == tools
	}) {
		t.Fatalf("%d tools are listed, want %d: %v", len(l.names), tools, err)
	}
	time.Sleep(1200 * time.Millisecond)
}

// callWithElicitation calls a tool that elicits an answer. A legacy client is asked during the call; a modern
// one repeats the call with its answer.
func callWithElicitation(ctx context.Context, p mcpclient.Client, tool, nonce string, id int) (mcpserver.EchoResult, error) {
	params := fmt.Sprintf(`{"name":%q,"arguments":{"nonce":%q,"tenant":"t"}}`, tool, nonce)
	for leg := range 3 {
		got, err := p.Call(ctx, mcpclient.Request{ID: fmt.Sprint(id + leg), Method: "tools/call", Params: params})
		if err != nil {
			return mcpserver.EchoResult{}, err
		}
		var r struct {
			Type   string                     `json:"resultType"`
			Inputs map[string]mcpwire.Message `json:"inputRequests"`
			State  *string                    `json:"requestState"`
		}
		if err := json.Unmarshal(got.Result, &r); err != nil {
			return mcpserver.EchoResult{}, fmt.Errorf("%s: %s", tool, got.Error)
		}
		if r.Type != "input_required" {
			var e mcpserver.EchoResult
			return e, json.Unmarshal([]byte(mcpclient.ResultText(got.Message)), &e)
		}
		replies := map[string]json.RawMessage{}
		for key, question := range r.Inputs {
			replies[key] = json.RawMessage(mcpclient.AcceptElicitation(question))
		}
		params = mcpwire.WithMember(params, `"inputResponses":`+mcpwire.EncodeJSON(replies))
		if r.State != nil {
			params = mcpwire.WithMember(params, `"requestState":`+mcpwire.Quote(*r.State))
		}
	}
	return mcpserver.EchoResult{}, fmt.Errorf("%s elicits without end", tool)
}
