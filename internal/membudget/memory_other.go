//go:build !linux && !darwin && !windows

package membudget

// machineMemory is not known here.
func machineMemory() (int64, bool) { return 0, false }
