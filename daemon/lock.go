package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Lock waits until this process alone may start or replace the gateway of an endpoint. The lock ends with the process,
// however that ends.
func (e Endpoint) Lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(e.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the gateway's socket: %w", err)
	}
	for {
		ok, err := tryLock(f)
		switch {
		case err != nil:
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", e.lockFile(), err)
		case ok:
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("another process has been starting the gateway for too long (it holds %s): %w", e.lockFile(), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func isErrno(err error, want syscall.Errno) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno == want
}
