//go:build unix

package secret

import (
	"io/fs"
	"os"
	"syscall"
)

// modeOf is a file's mode, where modes mean something.
func modeOf(info fs.FileInfo) (fs.FileMode, bool) { return info.Mode(), true }

// Owned says that a file is this process's user's.
func Owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
