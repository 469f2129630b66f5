package gate

import (
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/limit"
)

// A message beyond a limit is recorded, and one within it is not.
func TestOnlyRefusedMessagesAreRecorded(t *testing.T) {
	for messages, want := range map[int]int{1: 0, 2: 1} {
		log, lines := openAudit(t, &auditBuffer{}, "continue")
		g := New(Deps{Audit: log, Limiter: newLimiter(limit.Entry{Tenant: "default", Rate: 1})})
		for range messages {
			_ = g.Admit(auth.LocalCaller())
		}
		got := lines()
		if len(got) != want || want > 0 && (got[0]["event"] != "limit" || got[0]["decision"] != "deny") {
			t.Errorf("%d messages: %v", messages, got)
		}
	}
}
