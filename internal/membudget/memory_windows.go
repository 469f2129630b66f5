package membudget

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryStatus is MEMORYSTATUSEX.
type memoryStatus struct {
	length               uint32
	load                 uint32
	totalPhysical        uint64
	availablePhysical    uint64
	totalPageFile        uint64
	availablePageFile    uint64
	totalVirtual         uint64
	availableVirtual     uint64
	availableExtendedVir uint64
}

// machineMemory is the machine's memory.
func machineMemory() (int64, bool) {
	status := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	call := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")
	if ok, _, _ := call.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0, false
	}
	return int64(status.totalPhysical), true //nolint:gosec // no machine has 2^63 bytes
}
