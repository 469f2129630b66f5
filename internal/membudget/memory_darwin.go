package membudget

import "golang.org/x/sys/unix"

// machineMemory is the machine's memory.
func machineMemory() (int64, bool) {
	total, err := unix.SysctlUint64("hw.memsize")
	return int64(total), err == nil //nolint:gosec // no machine has 2^63 bytes
}
