package upstream

// Calls is how many calls are under way on a lane.
func Calls(l *Lane) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0
	}
	return l.conn.busy.Load()
}

// Failures is how often a lane's server has failed in a row.
func Failures(l *Lane) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures
}
