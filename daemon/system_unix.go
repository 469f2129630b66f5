//go:build unix

package daemon

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// systemRuntimeDir is where systemd makes the user's runtime directory.
func systemRuntimeDir() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	return fmt.Sprintf("/run/user/%d", os.Getuid())
}

// isOwn reports whether a file belongs to the user.
func isOwn(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// isPrivate reports whether nobody but the owner has rights.
func isPrivate(info os.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }

// tryLock locks a file for this process, or reports that another process has.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK { //nolint:errorlint // an Errno
		return false, nil
	}
	return err == nil, err
}

// detached makes a process that outlives its parent, its terminal and its process group.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// isRefused reports whether nobody listens at the socket.
func isRefused(err error) bool { return isErrno(err, syscall.ECONNREFUSED) }

// isAlive reports whether a process runs.
func isAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM //nolint:errorlint // an Errno
}
