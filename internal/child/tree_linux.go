package child

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr puts the child into a process group of its own, and makes the kernel kill it when the shim is killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// isSubreaper says that every descendant that loses its parent becomes the shim's child.
const isSubreaper = true

// becomeSubreaper makes it so, and gives the process a name for ps instead of "exe".
func becomeSubreaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = os.WriteFile("/proc/self/comm", []byte(shimName), 0)
}

func closeOnExecFrom(fd uint) error {
	return unix.CloseRange(fd, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// process is a process as /proc describes it.
type process struct{ pid, parent, group int }

// signalTree signals the child's process group and every other descendant. KILL goes to whole groups, so that a process
// cannot escape by starting another. A group is signalled only while a descendant is in it: the id of an empty group may
// be reused by others.
func signalTree(group int, sig syscall.Signal) {
	all := listProcesses()
	if len(all) == 0 { // there is no /proc
		_ = syscall.Kill(-group, sig)
	}
	own := syscall.Getpgrp()
	signalled := map[int]bool{}
	for _, p := range descendants(all, os.Getpid()) {
		whole := p.group == group || sig == syscall.SIGKILL
		switch {
		case p.group == own || !whole:
			_ = syscall.Kill(p.pid, sig)
		case !signalled[p.group]:
			signalled[p.group] = true
			_ = syscall.Kill(-p.group, sig)
		}
	}
}

// descendants are the children of pid, their children, and so on.
func descendants(all []process, pid int) []process {
	children := map[int][]process{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

func listProcesses() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []process
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// readProcess reads "pid (name) state parent group …"; the name may contain anything.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return process{pid, parent, group}, err1 == nil && err2 == nil
}
