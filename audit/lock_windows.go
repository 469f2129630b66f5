package audit

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockOffset is beyond the record: a locked range cannot be read.
const lockOffset = 1 << 20

// lockFile waits for the lock of a file that other processes lock, too.
func lockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &windows.Overlapped{Offset: lockOffset})
}

func unlockFile(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: lockOffset})
}
