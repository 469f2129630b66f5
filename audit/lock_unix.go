//go:build unix

package audit

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits for the lock of a file that other processes lock, too.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
