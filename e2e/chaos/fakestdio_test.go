//go:build linux

package chaos

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stdioOptions are the flags of a fake on a pipe.
type stdioOptions struct {
	options
	quirks
	deaf     int           // stop reading after so many messages; 0: never
	delay    time.Duration // sleep before the first byte is read
	heal     string        // exit at once until this file is there
	crashes  int           // exit at once so many times, and then no more
	become   string        // be of the other era once this file is there
	tree     bool          // start processes of its own
	stubborn bool          // stay when asked to go
}

func (o *stdioOptions) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("fake-stdio", flag.ContinueOnError)
	fs.StringVar(&o.server, "server", "", "")
	fs.StringVar(&o.ledger, "ledger", "", "")
	fs.StringVar(&o.gen, "gen", "", "")
	fs.StringVar((*string)(&o.era), "era", string(legacy), "")
	fs.IntVar(&o.tools, "tools", 0, "")
	fs.IntVar(&o.page, "page", 0, "")
	fs.StringVar(&o.hang, "hang", "", "")
	fs.BoolVar(&o.mute, "mute", false, "")
	fs.IntVar(&o.storm, "storm", 0, "")
	fs.BoolVar(&o.crlf, "crlf", false, "")
	fs.BoolVar(&o.bom, "bom", false, "")
	fs.BoolVar(&o.pair, "pair", false, "")
	fs.BoolVar(&o.idLast, "idlast", false, "")
	fs.BoolVar(&o.lsp, "lsp", false, "")
	fs.IntVar(&o.junk, "junk", 0, "")
	fs.IntVar(&o.drip, "drip", 0, "")
	fs.IntVar(&o.deaf, "deaf", 0, "")
	fs.DurationVar(&o.delay, "delay", 0, "")
	fs.StringVar(&o.heal, "heal", "", "")
	fs.IntVar(&o.crashes, "crashes", 0, "")
	fs.StringVar(&o.become, "become", "", "")
	fs.BoolVar(&o.tree, "tree", false, "")
	fs.BoolVar(&o.stubborn, "stubborn", false, "")
	return fs
}

// playStdio is the fake as a process.
func playStdio(args []string) int {
	var o stdioOptions
	if err := o.flags().Parse(args); err != nil {
		return 2
	}
	book, err := openLedger(o.ledger)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if _, err := os.Stat(o.become); o.become != "" && err == nil {
		o.era = o.era.other()
	}
	f := newFake(o.options, book)
	f.starts()
	if _, err := os.Stat(o.heal); o.heal != "" && err != nil || len(book.pids(o.server)) <= o.crashes {
		fmt.Fprintln(os.Stderr, "fake: not yet")
		return 1
	}
	if o.stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if o.tree {
		growTree(o.options)
	}
	time.Sleep(o.delay)
	serveStdio(f, o, os.Stdin, os.Stdout)
	if o.stubborn {
		linger()
	}
	return 0
}

// linger is for ever, as far as a scenario can tell: a survivor is a failure, not a burden. An empty
// select would not do: without cgo the runtime takes it for a deadlock and ends the process.
func linger() { time.Sleep(5 * time.Minute) }

// serveStdio answers until the input ends.
func serveStdio(f *fake, o stdioOptions, in io.Reader, w io.Writer) {
	out := &pipe{quirks: o.quirks, w: w}
	s := f.open(out)
	defer s.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go f.storms(ctx)
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
			f.note(event{What: didListen})
		}
		s.receive(ctx, out, line)
		if n == o.deaf {
			linger()
			return
		}
	}
}

// receive takes one line of the input.
func (s *session) receive(ctx context.Context, out *pipe, line []byte) {
	msg, err := parse(line)
	if err != nil {
		s.violation("%v", err)
		return
	}
	if msg.Method == "tools/call" {
		out.called()
	}
	if msg.isRequest() {
		go s.serve(ctx, out, msg)
		return
	}
	s.take(msg)
}

func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimRight(string(line), "\r\n")), nil
}

// readLSP reads a frame with a Content-Length header. Whoever speaks to a server before it has
// said a word cannot know its framing yet, so a line of its own is taken as well.
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
