//go:build unix

package agents_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/internal/testkit/agents"
)

// The limits in the table of clients are below what the clients cut themselves: with a policy that leaves texts whole,
// only fit_clients cuts them, and the model gets our marker, or the whole text, and never the client's own cut.
func TestLimitsOfClientsAreBelowTheirOwnCut(t *testing.T) {
	// Claude Code passes on what a tool declares, which a policy without cuts makes all of it; with the second policy
	// its own limit counts.
	const whole, masked = "[[policies]]\nreduce = \"none\"\n", "[masking]\nmax_chars = 50000\nhead_chars = 25000\ntail_chars = 25000\n"
	for id, config := range map[string]string{
		"codex": whole, "claude-code": masked, "continue": whole, "gemini": whole, "opencode": whole, "qwen": whole, "cline": whole,
	} {
		t.Run(id, func(t *testing.T) {
			a := requireAgent(t, id)
			t.Parallel()
			s := newSetup(t, a, config)
			sizes := []int{350_000, 40_000, 12_000, 9000}
			var turns []agents.Turn
			for _, size := range sizes {
				turns = append(turns, agents.CallTool("read_log", fmt.Sprintf(`{"name":"log%d","size":%d}`, size, size)))
			}
			script := s.ask(s.stdio(), turns...)
			for i, size := range sizes {
				result := script.Result(i)
				checkNothingLost(t, result, logText(fmt.Sprintf("log%d", size), size))
				for _, sign := range []string{"tokens truncated", "chars truncated", "Output too large", "has been saved to", "truncated to", "[truncated ", "omitted"} {
					if strings.Contains(result, sign) {
						t.Errorf("of %d characters %s cut itself (%q)", size, id, sign)
					}
				}
			}
		})
	}
}

const (
	wordyTool = "a_tool_whose_name_says_everything_that_there_is_to_say_about_what_it_does_and_why.v2"
	wordyText = "wordy-server says: do this, and then that. "
)

// serveWordy is an MCP server whose names and texts are longer than clients accept, on stdin and stdout.
func serveWordy() {
	s := mcp.NewServer(&mcp.Implementation{Name: "wordy", Version: "1"}, &mcp.ServerOptions{Instructions: "Instructions: " + strings.Repeat(wordyText, 150)})
	mcp.AddTool(s, &mcp.Tool{Name: wordyTool, Description: "Description: " + strings.Repeat(wordyText, 150)}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the wordy tool was called"}}}, nil, nil
	})
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// wordyToolOf is the name of the tool as a client gets it, without the server's id.
func wordyToolOf(id string) string {
	c, _ := clients.ByID(id)
	sum := sha256.Sum256([]byte("wordy__" + wordyTool))
	end := "_" + hex.EncodeToString(sum[:])[:8]
	name := strings.ReplaceAll("wordy__"+wordyTool, ".", "_")
	name = name[:min(len(name), c.ToolName-len(end))]
	return strings.TrimPrefix(strings.TrimRight(name, "_")+end, "wordy__")
}

// A tool with a name that model APIs refuse can be called by every agent. Claude Code shows the model our marker at the end
// of long descriptions and instructions, and not a text that it cut itself.
func TestLongNamesAndTextsReachTheModel(t *testing.T) {
	for _, id := range []string{"codex", "claude-code", "continue", "gemini", "opencode", "qwen", "cline"} {
		t.Run(id, func(t *testing.T) {
			a := requireAgent(t, id)
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			s := newSetup(t, a, fmt.Sprintf("[[servers]]\nid = \"wordy\"\ncommand = [%q, \"wordy-server\"]\n", self))
			script := s.ask(s.stdio(), agents.CallTool(wordyToolOf(id), `{}`))
			if got := script.Result(0); !strings.Contains(got, "the wordy tool was called") {
				t.Errorf("the call gave %.300s", got)
			}
			if id != "claude-code" {
				return
			}
			marker := regexp.MustCompile(`[\d,]+ characters left out; call recover_text with prune_id=prn_\w+ chars=\d+-\d+\]`)
			for _, begin := range []string{"Description: " + wordyText, "Instructions: " + wordyText} {
				found := false
				for _, r := range s.provider.Requests() {
					if at := strings.Index(string(r.Body), begin); at >= 0 {
						found = true
						if end := marker.FindIndex(r.Body[at:]); end == nil || end[0] > 2100 {
							t.Errorf("no marker after %.60q: %.2200s", begin, r.Body[at:])
						}
						break
					}
				}
				if !found {
					t.Errorf("the model never saw %q", begin)
				}
			}
		})
	}
}
