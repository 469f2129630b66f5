//go:build unix

package agents_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type logArgs struct {
	Name string `json:"name" jsonschema:"name of the log"`
	Size int    `json:"size" jsonschema:"its size in characters"`
}

// logLine is a line of a log. No two lines are equal, so that a lost one is noticed.
func logLine(name string, n int) string {
	return fmt.Sprintf("%s %06d a line of the log that nobody should lose, and its number is %06d\n", name, n, n*7)
}

// logText is a log of exactly size characters.
func logText(name string, size int) string {
	var b strings.Builder
	for n := 1; b.Len() < size; n++ {
		b.WriteString(logLine(name, n))
	}
	return b.String()[:size]
}

// serveLogs is an MCP server with one tool, on stdin and stdout, of the revision that most servers have. With an argument it takes that long to start. It
// adds a line to the file LOG_SERVER_STARTS, if that is set.
func serveLogs(args []string) {
	if name := os.Getenv("LOG_SERVER_STARTS"); name != "" {
		if file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			fmt.Fprintln(file, "started")
			file.Close()
		}
	}
	if len(args) > 0 {
		if delay, err := time.ParseDuration(args[0]); err == nil {
			time.Sleep(delay)
		}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "logs", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: []string{"2025-11-25", "2025-06-18"}})
	mcp.AddTool(s, &mcp.Tool{Name: "read_log", Description: "Read a log."}, func(_ context.Context, _ *mcp.CallToolRequest, a logArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: logText(a.Name, a.Size)}}}, nil, nil
	})
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
