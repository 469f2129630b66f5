//go:build unix

package secret

import (
	"io/fs"
	"os"
	"syscall"
)

// modeOf returns a file's mode.
func modeOf(info fs.FileInfo) (fs.FileMode, bool) { return info.Mode(), true }

// IsOwnedByUser says whether the file belongs to the user of this process.
func IsOwnedByUser(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
