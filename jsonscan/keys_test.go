package jsonscan

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// object is an object of n short keys, followed by rest.
func object(n int, more string) []byte {
	var b strings.Builder
	b.WriteString(`{"x":0`)
	for i := range n {
		fmt.Fprintf(&b, `,"%x":1`, i)
	}
	b.WriteString(more + "}")
	return []byte(b.String())
}

func reasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return 0
}

// A duplicate is found among many keys too, however it is escaped.
func TestDuplicatesAmongManyKeys(t *testing.T) {
	for more, want := range map[string]Reason{
		``: 0, `,"y":1`: 0, `,"fffff":1`: 0, `,"":1`: 0,
		`,"x":1`: DuplicateKey, `,"3":1`: DuplicateKey, `,"7ff":1`: DuplicateKey, `,"\u0037ff":1`: DuplicateKey,
		`,"a\"b":1,"a\u0022b":1`: DuplicateKey, `,"\\":1,"\u005c":1`: DuplicateKey, `,"\\":1,"\\\\":1`: 0,
	} {
		_, err := New(object(5000, more), 0).SkipStrict()
		if got := reasonOf(err); got != want {
			t.Errorf("%s: %v, want %d", more, err, want)
		}
	}
}

// I9: checking for duplicate keys takes no more memory than a few times the document.
func TestS9ManyKeysTakeLittleMemory(t *testing.T) {
	doc := object(1_000_000, "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := New(doc, 0).SkipStrict(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 3*uint64(len(doc)) {
		t.Errorf("%d bytes of JSON took %d", len(doc), taken)
	}
}

// I9: ReadFields refuses an object with more than MaxFields members.
func TestFieldsAreBounded(t *testing.T) {
	if _, err := FieldsOf(object(MaxFields-1, "")); err != nil {
		t.Error(err)
	}
	if _, err := FieldsOf(object(MaxFields, "")); reasonOf(err) != TooMany {
		t.Errorf("one more: %v", err)
	}
}

// The time to continue after many members does not grow with them for each member that follows: the
// sender of a document chooses both numbers.
func TestManyKeysBeforeAndAfter(t *testing.T) {
	const n = 100_000
	before := make([]string, n)
	for i := range before {
		before[i] = fmt.Sprintf("%x.", i)
	}
	doc := object(n, `,"5.":1`)
	s := NewAt(doc, len(`{"x":0`), 1, 0)
	began := time.Now()
	if err := s.MoreMembers(before, nil, func([]byte) error { _, err := s.Skip(); return err }); reasonOf(err) != DuplicateKey {
		t.Errorf("a key that stands in both parts: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second { // 10¹⁰ comparisons would take a minute
		t.Errorf("it took %s", took)
	}
}
