package audit

import "strings"

const (
	maxRepeated = 256 // different events that are counted at once
	repeatTicks = 10  // seconds after which a count is written
)

// repeatedEvent is an event that was recorded, and how often it has happened since.
type repeatedEvent struct {
	event Event
	count int64
}

// RecordRepeated records an event that a caller can cause as often as it likes, such as a wrong token. The first one
// is a line at once; those that follow within ten seconds are one line with their count. Events are the same if kind,
// tenant, subject, credential, remote address, method and reason are.
func (l *Log) RecordRepeated(e *Event) {
	if l.Enabled() && l.isFirst(e) {
		l.Record(e)
	}
}

func (l *Log) isFirst(e *Event) bool {
	kept := keepEvent(e)
	key := strings.Join([]string{kept.Kind, kept.Tenant, kept.Subject, kept.Credential, kept.Remote, kept.Method, kept.Reason}, "\x00")
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.repeated[key]; known != nil {
		known.count++
		return false
	}
	if l.repeated == nil {
		l.repeated = map[string]*repeatedEvent{}
	}
	if len(l.repeated) < maxRepeated {
		l.repeated[key] = &repeatedEvent{event: kept}
		return true
	}
	others := l.repeated[e.Kind]
	if others == nil {
		others = &repeatedEvent{event: Event{Kind: strings.Clone(e.Kind), Decision: strings.Clone(e.Decision), Reason: "of other callers"}}
		l.repeated[e.Kind] = others
	}
	others.count++
	return false
}

// keepEvent copies what identifies an event: its strings may be parts of large requests.
func keepEvent(e *Event) Event {
	short := func(s string) string { return strings.Clone(s[:min(len(s), maxText)]) }
	return Event{
		Kind: short(e.Kind), Tenant: short(e.Tenant), Subject: short(e.Subject), Issuer: short(e.Issuer), Credential: short(e.Credential),
		Remote: short(e.Remote), Method: short(e.Method), Decision: short(e.Decision), Rule: short(e.Rule), Reason: short(e.Reason),
	}
}

// flushRepeated records the counts. What did not repeat is forgotten.
func (l *Log) flushRepeated() {
	l.mu.Lock()
	counts := l.repeated
	l.repeated = nil
	l.mu.Unlock()
	for _, r := range counts {
		if r.count > 0 {
			r.event.Count = r.count
			l.Record(&r.event)
		}
	}
}
