package child

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// programAttr puts the program into a process group of its own, and has the kernel kill it when
// the shim is killed.
func programAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopts says that every descendant that loses its parent becomes our child.
const adopts = true

// adopt makes it so, and tells ps our name instead of "exe".
func adopt() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = os.WriteFile("/proc/self/comm", []byte(shimName), 0)
}

func closeOnExecFrom(fd uint) error {
	return unix.CloseRange(fd, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// process is what /proc says of one.
type process struct{ pid, parent, group int }

// signalTree signals the program's group and every other descendant. Whole groups are killed at
// once, so that a process that is just starting another cannot save it. The group is signalled
// because a descendant is in it: once it is empty, its number may be somebody else's.
func signalTree(group int, sig syscall.Signal) {
	all := processes()
	if len(all) == 0 { // no /proc
		_ = syscall.Kill(-group, sig)
	}
	own := syscall.Getpgrp()
	done := map[int]bool{}
	for _, p := range descendants(all, os.Getpid()) {
		whole := p.group == group || sig == syscall.SIGKILL
		switch {
		case p.group == own || !whole:
			_ = syscall.Kill(p.pid, sig)
		case !done[p.group]:
			done[p.group] = true
			_ = syscall.Kill(-p.group, sig)
		}
	}
}

// descendants are the children of pid, theirs, and so on.
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

func processes() []process {
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

// readProcess reads "pid (name) state parent group …"; a name may hold anything.
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
