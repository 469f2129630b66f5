package redisserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// startLimit is how long a node may take to start.
const startLimit = 2 * time.Minute

// Node is one server of a deployment. Its address and its data stay the same when it is killed and restarted.
type Node struct {
	Name string
	Port int

	server     *Server
	busPort    int // where the nodes of a Cluster talk to each other
	dir        string
	isSentinel bool

	mu  sync.Mutex
	run *run // nil before the first start
}

// run is one process of a node.
type run struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Address is where the node listens.
func (n *Node) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Port)) }

// Dir is where the node stores its data.
func (n *Node) Dir() string { return n.dir }

// PID is the process id of the node, 0 if it was never started.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return 0
	}
	return n.run.cmd.Process.Pid
}

// IsRunning reports whether the node's process has not ended. One that is paused has not.
func (n *Node) IsRunning() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run != nil && !n.run.hasExited()
}

func (r *run) hasExited() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// Restart starts the node if it does not run, and waits until it replies, if only that it loads its data.
func (n *Node) Restart() error {
	if n.IsRunning() {
		return nil
	}
	if err := n.startProcess(); err != nil {
		return err
	}
	return wait.Until(startLimit, n.Name+" did not reply", func() (bool, error) {
		if !n.IsRunning() {
			return false, fmt.Errorf("%s exited; its log:\n%s", n.Name, n.tail(3000))
		}
		_, err := n.Do("PING")
		return err == nil || isReply(err), nil
	})
}

func (n *Node) startProcess() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	program := "redis-server"
	if n.isSentinel {
		program = "redis-sentinel"
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r := &run{cmd: exec.CommandContext(context.Background(), program, n.configPath()), exited: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	endWithParent(r.cmd)
	started := make(chan error)
	go func() {
		defer close(r.exited)
		runtime.LockOSThread() // the kernel ends the process with the thread that started it
		err := r.cmd.Start()
		started <- err
		if err == nil {
			_ = r.cmd.Wait() // killed, as a rule
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	n.run = r
	return nil
}

// Kill ends the node at once, paused or not, and waits for its end.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run != nil {
		_ = n.run.cmd.Process.Kill() // it may have ended
		<-n.run.exited
	}
}

// Pause stops the node's process; its connections stay open.
func (n *Node) Pause() error { return n.signal(signalPause) }

// Resume continues a paused node.
func (n *Node) Resume() error { return n.signal(signalResume) }

func (n *Node) signal(s os.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return fmt.Errorf("%s was not started", n.Name)
	}
	return n.run.cmd.Process.Signal(s)
}

// Configuration and log are never in the directory of the data, which may be on a disk that fails.
func (n *Node) configPath() string { return filepath.Join(n.server.dir, n.Name+".conf") }
func (n *Node) logPath() string    { return filepath.Join(n.server.dir, n.Name+".log") }

func (n *Node) tail(maxBytes int) string {
	data, err := os.ReadFile(n.logPath())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-maxBytes):])
}
