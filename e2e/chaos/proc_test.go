//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// statOf reads the fields of /proc/<pid>/stat that follow the name, which may hold anything.
func statOf(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(data), ") ")
	if i := strings.LastIndex(string(data), ") "); ok && i >= 0 {
		rest = string(data)[i+2:]
	}
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return nil, fmt.Errorf("stat of %d is too short", pid)
	}
	return fields, nil
}

// bornOf is when a process began, in the kernel's ticks: with the pid it is a name for ever.
func bornOf(pid int) (uint64, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// alive says whether the very process of an event still runs; a zombie does not run.
func (e event) alive() bool {
	fields, err := statOf(e.PID)
	return err == nil && fields[0] != "Z" && fields[0] != "X" && fields[19] == strconv.FormatUint(e.Born, 10)
}

// survivors are the processes of a ledger that still run.
func (l *ledger) survivors() []event {
	var out []event
	for _, e := range l.events(didStart) {
		if e.Born != 0 && e.PID != os.Getpid() && e.alive() {
			out = append(out, e)
		}
	}
	return out
}

// reap kills what a failed scenario left behind, by its own id.
func (l *ledger) reap() {
	for _, e := range l.survivors() {
		if p, err := os.FindProcess(e.PID); err == nil {
			_ = p.Kill()
		}
	}
}

const tick = time.Second / 100 // the kernel's USER_HZ

// cpuOf is the processor time of a process, and of the children it has waited for.
func cpuOf(pid int) (own, children time.Duration) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, 0
	}
	at := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return time.Duration(n) * tick
	}
	return at(11) + at(12), at(13) + at(14)
}

// memoryOf is a size from /proc/<pid>/status, such as VmRSS or VmHWM, in bytes.
func memoryOf(pid int, field string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// resetPeak makes VmHWM begin anew.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// descriptorsOf counts the open files of a process, but for sockets: clients come and go.
func descriptorsOf(pid int) int {
	entries, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	n := 0
	for _, path := range entries {
		if to, err := os.Readlink(path); err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// childrenOf are the direct children of a process; zombies are those that nobody waited for.
func childrenOf(pid int) (pids, zombies []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields, err := statOf(child)
		if err != nil || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if pids = append(pids, child); fields[0] == "Z" {
			zombies = append(zombies, child)
		}
	}
	return pids, zombies
}
