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

// program is an entry for this binary as a server. The race detector would have it sleep a second at
// its exit.
func program(flags ...string) upstream.Server {
	return upstream.Server{
		Command: append([]string{os.Args[0], "run:server"}, flags...),
		Env:     map[string]secret.Text{"GORACE": secret.Literal("atexit_sleep_ms=0")},
	}
}

// server is what such a program is. Its flags:
//
//	log=FILE    notes in it what happens
//	banner      prints lines that are no messages first
//	modern      is of the newer era, and of the older one too
//	refuse      refuses initialize
//	faint       falls over initialize
//	fall        falls over the question of the newest revision
//	mum         does not answer initialize
//	counted     begins with Content-Length framing, and reads nothing else
//	both        speaks Content-Length framing, and reads either
//	quiet       reads nothing but Content-Length framing, and says nothing before
//	stay        does not end with its input
//	brief=FILE  ends at once after its greeting, as often as FILE has bytes, one fewer each time
type server struct {
	flags   []string
	in      *bufio.Reader
	counted bool // it speaks Content-Length framing
	heard   []string
}

func serve(flags []string) int {
	s := &server{flags: flags, in: bufio.NewReader(os.Stdin)}
	s.counted = s.has("counted") || s.has("quiet") || s.has("both")
	s.note("start")
	go s.onTerm()
	if s.has("banner") {
		fmt.Print("Starting…\n\n[info] 1.0\nContent-Type\n\"text\"\nnull\n")
	}
	if s.has("counted") {
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
	}
	for {
		text, err := s.next()
		if err != nil {
			s.note("eof")
			break
		}
		s.take(text)
	}
	if s.has("stay") {
		time.Sleep(time.Minute)
	}
	s.note("exit")
	return 0
}

func (s *server) onTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
	s.note("term")
	os.Exit(4)
}

func (s *server) has(flag string) bool { return slices.Contains(s.flags, flag) }

func (s *server) value(flag string) string {
	for _, f := range s.flags {
		if v, ok := strings.CutPrefix(f, flag+"="); ok {
			return v
		}
	}
	return ""
}

// note appends a word to the log, with what it is about.
func (s *server) note(words ...string) {
	path := s.value("log")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, strings.Join(words, " "))
		f.Close()
	}
}

// next reads a message in the framing that it knows. Any other line is none to it.
func (s *server) next() (string, error) {
	size := -1
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		switch {
		case !s.counted, s.has("both") && strings.HasPrefix(line, "{"):
			return line, nil
		case strings.HasPrefix(line, "Content-Length: "):
			size, _ = strconv.Atoi(strings.TrimPrefix(line, "Content-Length: "))
		case line == "" && size >= 0:
			text := make([]byte, size)
			_, err := io.ReadFull(s.in, text)
			s.note("counted")
			return string(text), err
		}
	}
}

func (s *server) say(text string) {
	if s.counted {
		fmt.Printf("Content-Length: %d\r\n\r\n%s", len(text), text)
	} else {
		fmt.Println(text)
	}
}

// order is what a message asks of the program.
type order struct {
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

func (s *server) take(text string) {
	s.heard = append(s.heard, text)
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		s.note("odd", text)
		return
	}
	s.note("got", o.Method)
	switch {
	case o.ID == nil:
	case o.Method == mcp.Discover && s.has("fall"):
		os.Exit(3)
	case o.Method == mcp.Discover && s.has("modern"):
		s.reply(o, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case o.Method == mcp.Initialize && s.has("mum"):
	case o.Method == mcp.Initialize && s.has("faint"):
		os.Exit(3)
	case o.Method == mcp.Initialize && s.has("refuse"):
		s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"Unsupported protocol version"}}`, o.ID))
	case o.Method == mcp.Initialize:
		s.reply(o, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"program","version":"1"}}`)
		s.last()
	case o.Method == mcp.ToolsCall:
		s.call(o)
	case o.Method == mcp.Ping:
		s.reply(o, `{}`)
	default:
		s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, o.ID))
	}
}

// last ends a program that is to be brief.
func (s *server) last() {
	path := s.value("brief")
	if left, err := os.ReadFile(path); path == "" || err != nil || len(left) == 0 {
		return
	} else if err := os.WriteFile(path, left[1:], 0o600); err == nil {
		os.Exit(5)
	}
}

func (s *server) reply(o order, result string) {
	s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, o.ID, result))
}

// call does what a tool's name says.
func (s *server) call(o order) {
	arg := o.Params.Arguments
	switch o.Params.Name {
	case "exit":
		os.Exit(arg.N)
	case "hang":
		return
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
		s.list(o, os.Environ())
		return
	case "pid":
		s.list(o, []string{strconv.Itoa(os.Getpid())})
		return
	case "heard":
		s.list(o, s.heard)
		return
	case "mute": // its stdout ends before it does
		os.Stdout.Close()
		time.Sleep(900 * time.Millisecond)
		s.note("exit")
		os.Exit(0)
	case "deaf": // it does not read any more
		s.reply(o, `{}`)
		time.Sleep(time.Minute)
	}
	s.reply(o, `{"content":[]}`)
}

func (s *server) list(o order, lines []string) {
	raw, _ := json.Marshal(lines)
	s.reply(o, string(raw))
}

// logged is what a program has noted in a file.
func logged(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
