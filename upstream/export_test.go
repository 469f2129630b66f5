package upstream

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
)

// SetStartupTimeout changes how long the next start may take. Call it before Start or from CountFailure.
func SetStartupTimeout(s *Server, d time.Duration) { s.entry.StartupTimeout = unit.Duration(d) }

// CallCount is how many calls are in flight.
func CallCount(conn *ManagedConn) int64 {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.conn == nil {
		return 0
	}
	return conn.conn.callCount.Load()
}

// SentRequests are the methods that the server has sent to clients.
func SentRequests(s *Server) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sentRequests.String()
}

// FailureCount is how often the server has failed in a row.
func FailureCount(conn *ManagedConn) int {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.failureCount
}

// DiscoverTimeout is how long server/discover is waited for.
const DiscoverTimeout = discoverTimeout

// SetCallWait changes how long calls wait for a server that is being installed.
func SetCallWait(conn *ManagedConn, d time.Duration) { conn.server.installWait = d }

// AcquireInstall acquires a slot of the queue for a package.
func AcquireInstall(ctx context.Context, q *InstallQueue, key string) (func(), error) {
	return q.acquire(ctx, key)
}

// InstallSlots is how many installs may run at once.
func InstallSlots(q *InstallQueue) int { return cap(q.slots) }

// InstallsKnown is how many packages the queue knows.
func InstallsKnown(q *InstallQueue) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.byKey)
}
