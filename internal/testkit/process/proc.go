package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const clockTick = time.Second / 100 // the kernel's USER_HZ

// Stat returns the fields of /proc/<pid>/stat after the process name, which may contain anything.
func Stat(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	return fields, nil
}

// StartTime is when a process started, in clock ticks since boot. Together with the pid it identifies a
// process for ever.
func StartTime(pid int) (uint64, error) {
	fields, err := Stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// IsRunning reports whether the process with this pid and start time still runs. A zombie does not.
func IsRunning(pid int, startTime uint64) bool {
	fields, err := Stat(pid)
	return err == nil && fields[0] != "Z" && fields[0] != "X" && fields[19] == strconv.FormatUint(startTime, 10)
}

// CPUTime is the processor time of a process and of the children it has waited for; 0 where there is no
// /proc.
func CPUTime(pid int) (own, children time.Duration) {
	fields, err := Stat(pid)
	if err != nil {
		return 0, 0
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return time.Duration(n) * clockTick
	}
	return ticks(11) + ticks(12), ticks(13) + ticks(14)
}

// Memory is a size in bytes from /proc/<pid>/status, such as VmRSS or VmHWM.
func Memory(pid int, field string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", pid, field)
}

// ResetPeakMemory resets VmHWM.
func ResetPeakMemory(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// OpenFiles counts the open files of a process without sockets.
func OpenFiles(pid int) int {
	entries, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	n := 0
	for _, path := range entries {
		if to, err := os.Readlink(path); err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Children returns the direct children of a process, and which of them are zombies.
func Children(pid int) (pids, zombies []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields, err := Stat(child)
		if err != nil || fields[1] != strconv.Itoa(pid) {
			continue
		}
		pids = append(pids, child)
		if fields[0] == "Z" {
			zombies = append(zombies, child)
		}
	}
	return pids, zombies
}
