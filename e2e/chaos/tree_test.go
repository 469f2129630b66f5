//go:build linux

package chaos

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// treeSize is how many processes a fake with a tree is: itself, its five, and two of theirs.
const treeSize = 8

// growTree starts what `npx` and shell scripts leave under a server: processes that ignore every
// polite signal and hold no pipe. One leads a session of its own, one has lost its parent.
func growTree(o options) {
	branch(o, "plain", nil)
	branch(o, "parent", nil)                                 // has a child of its own
	branch(o, "session", &syscall.SysProcAttr{Setsid: true}) // left the process group
	branch(o, "daemon", &syscall.SysProcAttr{Setsid: true})  // its child outlives it
	branch(o, "group", &syscall.SysProcAttr{Setpgid: true})  // a shell's job
	time.Sleep(50 * time.Millisecond)                        // let them write themselves down
}

func branch(o options, kind string, attr *syscall.SysProcAttr) {
	cmd := exec.Command(os.Args[0], "fake-tree", o.server, o.ledger, kind)
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	go func() { _ = cmd.Wait() }()
}

// playTree is one process of the tree.
func playTree(args []string) int {
	server, path, kind := args[0], args[1], args[2]
	book, err := openLedger(path)
	if err != nil {
		return 2
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	born, _ := bornOf(os.Getpid())
	book.note(event{What: didStart, Server: server + "/" + kind, PPID: os.Getppid(), Born: born})
	o := options{server: server, ledger: path}
	switch kind {
	case "parent":
		branch(o, "grandchild", nil)
	case "daemon":
		branch(o, "orphan", &syscall.SysProcAttr{Setsid: true})
		time.Sleep(20 * time.Millisecond)
		return 0
	}
	linger()
	return 0
}
