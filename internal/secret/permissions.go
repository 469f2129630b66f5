package secret

import (
	"fmt"
	"io/fs"
	"os"
)

// checkNotWorldWritable refuses a file that everybody on this machine can change.
func checkNotWorldWritable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // reading the file reports it
	}
	if mode, ok := modeOf(info); ok && mode.Perm()&0o002 != 0 {
		return fmt.Errorf("secret file %s can be changed by everybody (mode %04o); chmod o-w it", path, mode.Perm())
	}
	return nil
}

// PermissionWarning describes permissions of a secret's file that are too open, though the file is
// used; "" when there are none, or when the file is another user's. Kubernetes mounts secrets that are
// root's and that everybody in a container may read.
func PermissionWarning(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	mode, ok := modeOf(info)
	switch {
	case !ok || !IsOwnedByUser(info):
		return ""
	case mode.Perm()&0o020 != 0:
		return fmt.Sprintf("secret file %s can be changed by its group (mode %04o); chmod 600 it", path, mode.Perm())
	case mode.Perm()&0o004 != 0:
		return fmt.Sprintf("secret file %s can be read by everybody (mode %04o); chmod 600 it", path, mode.Perm())
	}
	return ""
}

// RestrictPermissions removes the permissions of a file or folder of the gateway that are not in
// allowed. message says what it changed, or could not change, for the log; an error means that
// everybody can change the file and this user cannot restrict it.
func RestrictPermissions(path string, allowed fs.FileMode) (message string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil //nolint:nilerr // using the file reports it
	}
	mode, ok := modeOf(info)
	if !ok || mode.Perm()&^allowed == 0 {
		return "", nil
	}
	if IsOwnedByUser(info) && os.Chmod(path, mode.Perm()&allowed) == nil {
		return fmt.Sprintf("%s was open to others (mode %04o); it is now %04o", path, mode.Perm(), mode.Perm()&allowed), nil
	}
	if mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return "", fmt.Errorf("%s can be changed by everybody (mode %04o) and is another user's: chmod o-w it, or configure a folder inside it", path, mode.Perm())
	}
	return fmt.Sprintf("%s is open to others (mode %04o) and is another user's", path, mode.Perm()), nil
}
