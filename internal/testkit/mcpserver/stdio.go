//go:build linux

package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// stdioOptions are the flags of a server process.
type stdioOptions struct {
	Options
	quirks
	stopReadingAfter   int           // messages; 0: never
	startDelay         time.Duration // before the first byte is read
	failUntilFile      string        // exit at once until this file exists
	crashCount         int           // how often to exit at once
	switchRevisionFile string        // use the other revision once this file exists
	hasTree            bool          // start child processes
	ignoresSignals     bool          // keep running after SIGTERM and the end of stdin
}

func (o *stdioOptions) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("mcp-server", flag.ContinueOnError)
	fs.StringVar(&o.ServerID, "server", "", "")
	fs.StringVar(&o.EventLog, "events", "", "")
	fs.StringVar(&o.Generation, "generation", "", "")
	fs.StringVar((*string)(&o.Revision), "revision", string(mcpwire.Legacy), "")
	fs.IntVar(&o.ToolCount, "tools", 0, "")
	fs.IntVar(&o.PageSize, "page-size", 0, "")
	fs.StringVar(&o.HangMethod, "hang", "", "")
	fs.BoolVar(&o.IgnoreDiscover, "ignore-discover", false, "")
	fs.StringVar(&o.RugPullFile, "rug-pull-file", "", "")
	fs.IntVar(&o.ChangesPerSecond, "changes-per-second", 0, "")
	fs.BoolVar(&o.crlf, "crlf", false, "")
	fs.BoolVar(&o.bom, "bom", false, "")
	fs.BoolVar(&o.pair, "pair-frames", false, "")
	fs.BoolVar(&o.idLast, "id-last", false, "")
	fs.BoolVar(&o.lsp, "lsp", false, "")
	fs.IntVar(&o.junk, "junk-every", 0, "")
	fs.IntVar(&o.drip, "byte-delay-ms", 0, "")
	fs.IntVar(&o.stopReadingAfter, "stop-reading-after", 0, "")
	fs.DurationVar(&o.startDelay, "start-delay", 0, "")
	fs.StringVar(&o.failUntilFile, "fail-until-file", "", "")
	fs.IntVar(&o.crashCount, "crash-count", 0, "")
	fs.StringVar(&o.switchRevisionFile, "switch-revision-file", "", "")
	fs.BoolVar(&o.hasTree, "tree", false, "")
	fs.BoolVar(&o.ignoresSignals, "ignore-signals", false, "")
	return fs
}

// RunStdio runs the server as a process and returns its exit code. The test binary calls it when it is
// started with the server's command line.
func RunStdio(args []string) int {
	var o stdioOptions
	if err := o.flags().Parse(args); err != nil {
		return 2
	}
	book, err := openEventLog(o.EventLog)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if _, err := os.Stat(o.switchRevisionFile); o.switchRevisionFile != "" && err == nil {
		o.Revision = o.Revision.Other()
	}
	f := newServer(o.Options, book)
	f.recordStart()
	if _, err := os.Stat(o.failUntilFile); o.failUntilFile != "" && err != nil || len(book.PIDs(o.ServerID)) <= o.crashCount {
		fmt.Fprintln(os.Stderr, "mcpserver: failing as requested")
		return 1
	}
	if o.ignoresSignals {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if o.hasTree {
		startTree(o.Options)
	}
	time.Sleep(o.startDelay)
	serveStdio(f, o, os.Stdin, os.Stdout)
	if o.ignoresSignals {
		sleepForever()
	}
	return 0
}

// sleepForever sleeps longer than any scenario, but not for ever. An empty select would not do: without cgo
// the runtime reports a deadlock and exits.
func sleepForever() { time.Sleep(5 * time.Minute) }

// serveStdio serves until stdin ends.
func serveStdio(f *Server, o stdioOptions, in io.Reader, w io.Writer) {
	out := &stdoutWriter{quirks: o.quirks, w: w}
	s := f.newSession(out)
	defer s.closeSession()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go f.changeToolsRepeatedly(ctx)
	read := readLine
	if o.lsp {
		read = readLSP
	}
	lines := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		line, err := read(lines)
		if err != nil {
			return
		}
		if n == 1 {
			f.record(Event{What: Listening})
		}
		s.receiveLine(ctx, out, line)
		if n == o.stopReadingAfter {
			sleepForever()
			return
		}
	}
}

// receiveLine handles one line of stdin.
func (s *session) receiveLine(ctx context.Context, out *stdoutWriter, line []byte) {
	msg, err := mcpwire.ParseMessage(line)
	if err != nil {
		s.violation("%v", err)
		return
	}
	if msg.Method == "tools/call" {
		out.markCalled()
	}
	if msg.IsRequest() {
		go s.serveRequest(ctx, out, msg)
		return
	}
	s.handleMessage(msg)
}

func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimRight(string(line), "\r\n")), nil
}

// readLSP reads a frame with a Content-Length header. A client that writes first cannot know the framing yet,
// so a plain line is accepted too.
func readLSP(r *bufio.Reader) ([]byte, error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] == '{' {
		return readLine(r)
	}
	head, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(head.Get("Content-Length"))
	if err != nil || n < 0 || n > 64<<20 {
		return nil, errors.New("no Content-Length")
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}

// TreeSize is the number of processes of a server with a tree: itself, five children, two grandchildren.
const TreeSize = 8

// startTree starts processes as `npx` and shell scripts leave them under a server: they ignore signals and
// hold no pipe. One leads its own session, one has lost its parent.
func startTree(o Options) {
	startBranch(o, "plain", nil)
	startBranch(o, "parent", nil)                                 // has a child of its own
	startBranch(o, "session", &syscall.SysProcAttr{Setsid: true}) // left the process group
	startBranch(o, "daemon", &syscall.SysProcAttr{Setsid: true})  // its child outlives it
	startBranch(o, "group", &syscall.SysProcAttr{Setpgid: true})  // a shell's job
	time.Sleep(50 * time.Millisecond)                             // until they have recorded their start
}

func startBranch(o Options, kind string, attr *syscall.SysProcAttr) {
	cmd := exec.CommandContext(context.Background(), os.Args[0], "mcp-server-tree", o.ServerID, o.EventLog, kind)
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	go func() { _ = cmd.Wait() }()
}

// RunTree runs one process of the tree and returns its exit code.
func RunTree(args []string) int {
	server, path, kind := args[0], args[1], args[2]
	book, err := openEventLog(path)
	if err != nil {
		return 2
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	born, _ := process.StartTime(os.Getpid())
	book.record(Event{What: Started, Server: server + "/" + kind, PPID: os.Getppid(), Born: born})
	o := Options{ServerID: server, EventLog: path}
	switch kind {
	case "parent":
		startBranch(o, "grandchild", nil)
	case "daemon":
		startBranch(o, "orphan", &syscall.SysProcAttr{Setsid: true})
		time.Sleep(20 * time.Millisecond)
		return 0
	}
	sleepForever()
	return 0
}
