//go:build !unix

package secret

import "io/fs"

// modeOf reports false: file modes mean nothing on this system.
func modeOf(fs.FileInfo) (fs.FileMode, bool) { return 0, false }

// IsOwnedByUser says whether the file belongs to the user of this process.
func IsOwnedByUser(fs.FileInfo) bool { return false }
