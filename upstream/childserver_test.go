package upstream_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// childEntry is an entry that runs this binary as an MCP server. Without GORACE, the race detector would sleep a second at
// exit.
func childEntry(flags ...string) upstream.ServerConfig {
	return upstream.ServerConfig{
		Command: append([]string{os.Args[0], "run:server"}, flags...),
		Env:     map[string]secret.Text{"GORACE": secret.Literal("atexit_sleep_ms=0")},
	}
}

// childServer is that MCP server. Its flags:
//
//	log=FILE    logs to FILE what happens
//	banner      prints lines that are not messages first
//	modern      speaks the modern protocol, and the legacy one too
//	refuse      refuses initialize
//	faint       crashes at initialize
//	fall        crashes at server/discover
//	mum         does not answer initialize
//	mum=FILE    does not answer it while FILE exists
//	counted     starts with Content-Length framing, and reads nothing else
//	both        writes Content-Length framing, and reads either
//	quiet       reads only Content-Length framing, and sends nothing before
//	stay        does not end at the end of its input
//	roots       asks for the client's roots after the handshake, if the client has any
//	brief=FILE  ends right after the handshake, as often as FILE has bytes; removes one each time
type childServer struct {
	flags    []string
	in       *bufio.Reader
	counted  bool // it speaks Content-Length framing
	received []string
}

func runChildServer(flags []string) int {
	s := &childServer{flags: flags, in: bufio.NewReader(os.Stdin)}
	s.counted = s.hasFlag("counted") || s.hasFlag("quiet") || s.hasFlag("both")
	s.logWords("start")
	go s.onTerm()
	if s.hasFlag("banner") {
		fmt.Print("Starting…\n\n[info] 1.0\nContent-Type\n\"text\"\nnull\n")
	}
	if s.hasFlag("counted") {
		s.writeMessage(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
	}
	for {
		text, err := s.readMessage()
		if err != nil {
			s.logWords("eof")
			break
		}
		s.handleMessage(text)
	}
	if s.hasFlag("stay") {
		time.Sleep(time.Minute)
	}
	s.logWords("exit")
	return 0
}

func (s *childServer) onTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
	s.logWords("term")
	os.Exit(4)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *childServer) hasFlag(flag string) bool { return slices.Contains(s.flags, flag) }

func (s *childServer) flagValue(flag string) string {
	for _, f := range s.flags {
		if v, ok := strings.CutPrefix(f, flag+"="); ok {
			return v
		}
	}
	return ""
}

// logWords appends a line to the log.
func (s *childServer) logWords(words ...string) {
	path := s.flagValue("log")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, strings.Join(words, " "))
		f.Close()
	}
}

// readMessage reads a message in the framing that it knows, and ignores other lines.
func (s *childServer) readMessage() (string, error) {
	size := -1
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		switch {
		case !s.counted, s.hasFlag("both") && strings.HasPrefix(line, "{"):
			return line, nil
		case strings.HasPrefix(line, "Content-Length: "):
			size, _ = strconv.Atoi(strings.TrimPrefix(line, "Content-Length: "))
		case line == "" && size >= 0:
			text := make([]byte, size)
			_, err := io.ReadFull(s.in, text)
			s.logWords("counted")
			return string(text), err
		}
	}
}

func (s *childServer) writeMessage(text string) {
	if s.counted {
		fmt.Printf("Content-Length: %d\r\n\r\n%s", len(text), text)
	} else {
		fmt.Println(text)
	}
}

// childRequest is a request to the child.
type childRequest struct {
	Method string
	ID     json.RawMessage
	Params struct {
		Name      string
		Arguments struct {
			N     int
			Text  string
			Where string
		}
	}
}

func (s *childServer) handleMessage(text string) {
	s.received = append(s.received, text)
	var o childRequest
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		s.logWords("invalid", text)
		return
	}
	s.logWords("got", o.Method)
	switch {
	case o.Method == mcp.NotifyInitialized && s.hasFlag("roots"):
		if strings.Contains(strings.Join(s.received, ""), `"roots":`) {
			s.writeMessage(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		}
	case o.ID == nil || o.Method == "":
	case o.Method == mcp.ServerDiscover && s.hasFlag("fall"):
		os.Exit(3)
	case o.Method == mcp.ServerDiscover && s.hasFlag("modern"):
		s.reply(o, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case o.Method == mcp.Initialize && (s.hasFlag("mum") || exists(s.flagValue("mum"))):
	case o.Method == mcp.Initialize && s.hasFlag("faint"):
		os.Exit(3)
	case o.Method == mcp.Initialize && s.hasFlag("refuse"):
		s.writeMessage(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"Unsupported protocol version"}}`, o.ID))
	case o.Method == mcp.Initialize:
		s.reply(o, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"child","version":"1"}}`)
		s.exitIfBrief()
	case o.Method == mcp.ToolsCall:
		s.callTool(o)
	case o.Method == mcp.Ping:
		s.reply(o, `{}`)
	default:
		s.writeMessage(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, o.ID))
	}
}

// exitIfBrief ends a child with the flag brief.
func (s *childServer) exitIfBrief() {
	path := s.flagValue("brief")
	if left, err := os.ReadFile(path); path == "" || err != nil || len(left) == 0 {
		return
	} else if err := os.WriteFile(path, left[1:], 0o600); err == nil {
		os.Exit(5)
	}
}

func (s *childServer) reply(o childRequest, result string) {
	s.writeMessage(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, o.ID, result))
}

// callTool does what the tool's name says.
func (s *childServer) callTool(o childRequest) {
	arg := o.Params.Arguments
	switch o.Params.Name {
	case "exit":
		os.Exit(arg.N)
	case "hang":
		return
	case "slow":
		time.Sleep(time.Duration(arg.N) * time.Millisecond)
	case "junk":
		fmt.Print(strings.Repeat(cmp.Or(arg.Text, "no message")+"\n", arg.N))
	case "raw":
		fmt.Println(strings.ReplaceAll(strings.ReplaceAll(arg.Text, "$id", string(o.ID)), "$fill", strings.Repeat("x", arg.N)))
		return
	case "complain":
		for n := range arg.N {
			fmt.Fprintln(os.Stderr, "line", n)
		}
	case "environment":
		s.replyLines(o, os.Environ())
		return
	case "directory":
		dir, _ := os.Getwd()
		s.replyLines(o, []string{dir})
		return
	case "pid":
		s.replyLines(o, []string{strconv.Itoa(os.Getpid())})
		return
	case "received":
		s.replyLines(o, s.received)
		return
	case "close-stdout": // and exit later
		os.Stdout.Close()
		time.Sleep(900 * time.Millisecond)
		s.logWords("exit")
		os.Exit(0)
	case "stop-reading":
		s.reply(o, `{}`)
		time.Sleep(time.Minute)
	}
	s.reply(o, `{"content":[]}`)
}

func (s *childServer) replyLines(o childRequest, lines []string) {
	raw, _ := json.Marshal(lines)
	s.reply(o, string(raw))
}

// readLog reads a child's log.
func readLog(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
