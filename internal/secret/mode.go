package secret

import (
	"fmt"
	"io/fs"
	"os"
)

// checkFile refuses a file that anybody on this machine can change.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // reading it says what is wrong
	}
	if mode, ok := modeOf(info); ok && mode.Perm()&0o002 != 0 {
		return fmt.Errorf("secret file %s can be changed by everybody (mode %04o); chmod o-w it", path, mode.Perm())
	}
	return nil
}

// Lax says what is too open about a secret's file that can be used all the same; "" when nothing is, or
// when it is not this user's to mend. Kubernetes mounts secrets that everybody in a container may
// read, and root's.
func Lax(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	mode, ok := modeOf(info)
	switch {
	case !ok || !Owned(info):
		return ""
	case mode.Perm()&0o020 != 0:
		return fmt.Sprintf("secret file %s can be changed by its group (mode %04o); chmod 600 it", path, mode.Perm())
	case mode.Perm()&0o004 != 0:
		return fmt.Sprintf("secret file %s can be read by everybody (mode %04o); chmod 600 it", path, mode.Perm())
	}
	return ""
}

// Mend takes everybody's rights but the owner's from a file or folder of ours. It says what it did, or
// what it could not do; an error means that others can change it and that this cannot be mended.
func Mend(path string, want fs.FileMode) (said string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil //nolint:nilerr // using it says what is wrong
	}
	mode, ok := modeOf(info)
	if !ok || mode.Perm()&^want == 0 {
		return "", nil
	}
	if Owned(info) && os.Chmod(path, mode.Perm()&want) == nil {
		return fmt.Sprintf("%s was open to others (mode %04o); it is now %04o", path, mode.Perm(), mode.Perm()&want), nil
	}
	if mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return "", fmt.Errorf("%s can be changed by everybody (mode %04o) and is another user's: chmod o-w it, or name a folder in it that is made", path, mode.Perm())
	}
	return fmt.Sprintf("%s is open to others (mode %04o) and is another user's", path, mode.Perm()), nil
}
