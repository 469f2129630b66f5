// Package child runs a child process that never outlives the gateway: neither it nor anything it started is left
// behind, whether it is stopped, ends by itself, or the gateway is killed with SIGKILL.
//
// Between the gateway and the child stands a shim: the gateway's own binary under another name. It holds one end of
// a pipe, the lifeline. Only the gateway has the other end, so end of file means that the gateway is dead, however it
// died. The shim is the subreaper of everything that the child starts: a process that loses its parent becomes the
// shim's child, and the shim stays until it has none.
//
// Path through the files: child.go is the life of a Child, launch_unix.go starts it and reports how it ended,
// shim_unix.go is the shim, tree_linux.go finds and signals the descendants (tree_other.go knows only the process
// group), launch_windows.go does all of it with a job object. environ.go builds the child's environment and finds its
// executable.
//
// Invariants:
//   - A child has three pipes to the gateway, the environment in its Spec, and nothing else: no other file descriptor,
//     ignored signal or variable of the gateway reaches it.
//   - When Done is closed, the child and all its descendants are dead and reaped.
//   - Stop asks before it forces: end of input, then TERM, then KILL.
//   - Only descendants of the shim are signalled.
//
// If the shim itself is killed, the kernel kills the child, and the gateway its process group; processes that had left
// that group survive, and Err says so. On systems other than Linux and Windows, processes that leave the group are
// never found.
package child

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

const (
	maxTerm  = 2 * time.Second        // how long TERM may take, whatever the grace
	maxKill  = 5 * time.Second        // how long the shim may take to kill
	maxStart = 30 * time.Second       // how long it may take to start the child
	maxDrain = 500 * time.Millisecond // how long stderr may stay open after the end
)

// MaxStderrLine is how much of a line of stderr is passed on, in bytes. A line of that length was cut.
const MaxStderrLine = 4 << 10

// Spec says what to run.
type Spec struct {
	Command      []string          // looked up in the PATH of Env, or relative to Dir
	Env          []string          // the complete environment
	Dir          string            // the gateway's own if empty
	OnStderrLine func(line string) // gets each line, cut to MaxStderrLine, from one goroutine; may be nil
}

// Child is a child process. All methods are safe for concurrent use.
type Child struct {
	stdin, stdout *os.File
	pid           int
	control       control
	done          chan struct{}
	err           error // valid once done is closed
}

// Start runs a child. It returns once the child runs, or with the reason why it does not.
func Start(spec Spec) (*Child, error) {
	if len(spec.Command) == 0 {
		return nil, errors.New("no command")
	}
	path, err := findExecutable(spec)
	if err != nil {
		return nil, err
	}
	return launch(path, spec)
}

// Stdin is the pipe to the child. Stop closes it, and so does the child's end.
func (c *Child) Stdin() io.WriteCloser { return c.stdin }

// Stdout is the pipe from the child. The caller reads it to its end and closes it: the last output can be read after
// Done.
func (c *Child) Stdout() io.ReadCloser { return c.stdout }

// Pid is the child's process id.
func (c *Child) Pid() int { return c.pid }

// Done is closed when the child and all its descendants have ended and are reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err is how the child ended, once Done is closed: nil for exit status 0.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop ends the child: it closes stdin and waits for grace, then sends TERM and waits as long again but no more than
// two seconds, then KILL; the signals go to all descendants. It returns when Done is closed.
func (c *Child) Stop(grace time.Duration) {
	c.stdin.Close()
	if c.endsWithin(grace) {
		return
	}
	if c.control.terminate() && c.endsWithin(min(grace, maxTerm)) {
		return
	}
	c.Kill()
	<-c.done
}

// Kill kills the child and its descendants, and does not wait.
func (c *Child) Kill() {
	c.control.kill()
	time.AfterFunc(maxKill, c.control.abandon)
}

func (c *Child) endsWithin(d time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(d):
		return false
	}
}

// setEnded closes Done. Whatever still holds stderr open is not a descendant.
func (c *Child) setEnded(err error, stderr *stderrReader) {
	stderr.close(maxDrain)
	c.stdin.Close()
	c.err = err
	close(c.done)
}

// stderrReader passes on the lines of a child's stderr.
type stderrReader struct {
	pipe  *os.File
	ended chan struct{}
}

func readStderr(pipe *os.File, onLine func(string)) *stderrReader {
	if onLine == nil {
		onLine = func(string) {}
	}
	s := &stderrReader{pipe: pipe, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		readLines(pipe, onLine)
	}()
	return s
}

// readLines reads everything: a child whose stderr is full would hang.
func readLines(r io.Reader, onLine func(string)) {
	in := bufio.NewReaderSize(r, MaxStderrLine)
	for {
		text, err := in.ReadSlice('\n')
		if len(text) > 0 {
			onLine(string(bytes.TrimRight(text, "\r\n")))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// close waits at most d for the end of stderr, and closes it.
func (s *stderrReader) close(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
	}
	s.pipe.Close()
}

// direction is the direction of a pipe.
type direction bool

const (
	fromChild direction = false
	toChild   direction = true
)

// pipes are the pipes to another process. All ends are close-on-exec. The other process gets its ends explicitly, and
// the gateway closes them afterwards: a pipe ends only when its last copy is closed.
type pipes struct{ ours, theirs []*os.File }

func openPipes(directions ...direction) (pipes, error) {
	var p pipes
	for _, d := range directions {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(p.ours)
			closeAll(p.theirs)
			return pipes{}, err
		}
		if d == fromChild {
			r, w = w, r
		}
		p.ours, p.theirs = append(p.ours, w), append(p.theirs, r)
	}
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
