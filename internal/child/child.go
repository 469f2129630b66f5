// Package child runs a program that never outlives us: neither it nor anything it started is
// left behind, whether we stop it, it ends by itself, or we are killed with SIGKILL.
//
// Between the gateway and the program stands a shim, our own binary under another name, whose
// [Lifeline] holds one end of a pipe. The other end is the gateway's alone, so the pipe's end of
// file is the gateway's death, however it came. The shim is the subreaper of all that the
// program starts: what loses its parent becomes the shim's child, and it stays until it has none.
//
// Path through the files: child.go is the life of a Child, launch_unix.go starts it and hears
// how it ended, lifeline_unix.go ★ is the shim, tree_linux.go finds and signals the descendants
// (tree_other.go knows only the process group), launch_windows.go does all of it with a job
// object instead. environ.go says what a program gets of our environment and where its command
// is, stderr.go hands over what it complains about, plumbing.go opens the pipes.
//
// Invariants:
//   - A program has our end of three pipes, the environment in its Spec, and nothing else: no
//     other file descriptor, ignored signal or variable of ours reaches it.
//   - When Done is closed, everything of the program is dead and reaped.
//   - Stop asks before it forces: end of input, then TERM, then KILL.
//   - No process is signalled that is not a descendant of the shim.
//
// When the shim itself is killed, the kernel kills the program and the gateway its process
// group; only what had left that group survives, and Err says that it may. Elsewhere than on
// Linux and Windows, what leaves the process group is never found.
package child

import (
	"errors"
	"io"
	"os"
	"time"
)

const (
	maxTerm  = 2 * time.Second        // how long TERM may take, whatever the grace
	maxKill  = 5 * time.Second        // how long the shim may take to kill
	maxStart = 30 * time.Second       // how long it may take to start the program
	maxDrain = 500 * time.Millisecond // how long stderr may stay open after the end
)

// Spec is a program to run.
type Spec struct {
	Command []string          // looked up in the PATH of Env, or relative to Dir
	Env     []string          // the complete environment of the program
	Dir     string            // ours if empty
	Stderr  func(line string) // gets each line, its first 4 KiB, from one goroutine; may be nil
}

// Child is a program that was started. All methods are safe for concurrent use.
type Child struct {
	stdin, stdout *os.File
	pid           int
	leash         leash
	done          chan struct{}
	err           error // before done is closed, the watcher's
}

// Start runs the program. It returns once the program runs, or with the reason why it does not.
func Start(spec Spec) (*Child, error) {
	if len(spec.Command) == 0 {
		return nil, errors.New("no command")
	}
	path, err := lookup(spec)
	if err != nil {
		return nil, err
	}
	return launch(path, spec)
}

// Stdin is the pipe to the program. Stop closes it, and so does the program's end.
func (c *Child) Stdin() io.WriteCloser { return c.stdin }

// Stdout is the pipe from the program. It is the caller's to read to its end, and to close: what
// the program said last can be read after Done.
func (c *Child) Stdout() io.ReadCloser { return c.stdout }

// Pid is the program's.
func (c *Child) Pid() int { return c.pid }

// Done is closed when the program and all that it started have ended and are reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err is how the program ended, once Done is closed: nil for exit status 0.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop ends the program: the end of its input and as long as grace, then TERM and as long again
// but no more than two seconds, then KILL; the last two for everything it started as well. It
// returns when Done is closed.
func (c *Child) Stop(grace time.Duration) {
	c.stdin.Close()
	if c.endsWithin(grace) {
		return
	}
	if c.leash.term() && c.endsWithin(min(grace, maxTerm)) {
		return
	}
	c.Kill()
	<-c.done
}

// Kill kills the program and everything it started, and does not wait.
func (c *Child) Kill() {
	c.leash.kill()
	time.AfterFunc(maxKill, c.leash.cut)
}

func (c *Child) endsWithin(d time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(d):
		return false
	}
}

// finish is the watcher's last act. What still holds stderr open is nothing of ours.
func (c *Child) finish(err error, stderr *complaints) {
	stderr.drain(maxDrain)
	c.stdin.Close()
	c.err = err
	close(c.done)
}
