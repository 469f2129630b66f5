package daemon

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// systemRuntimeDir is empty: the data directory is used.
func systemRuntimeDir() string { return "" }

// isOwn and isPrivate are true: directories below the user's profile inherit its access rights.
func isOwn(os.FileInfo) bool     { return true }
func isPrivate(os.FileInfo) bool { return true }

// tryLock locks a file for this process, or reports that another process has.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// detached makes a process that outlives its parent and has no console.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// isRefused reports whether nobody listens at the socket.
func isRefused(err error) bool { return isErrno(err, windows.WSAECONNREFUSED) }

// isAlive reports whether a process runs.
func isAlive(pid int) bool {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return false
	}
	defer windows.CloseHandle(h) //nolint:errcheck // there is nothing to do about it
	state, err := windows.WaitForSingleObject(h, 0)
	return err == nil && state == uint32(windows.WAIT_TIMEOUT)
}
