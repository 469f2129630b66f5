package membudget

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/fault"
)

const mib = 1 << 20

// One caller gets its share and no more; another caller still gets its own.
func TestOneCallerCannotTakeItAll(t *testing.T) {
	b := New(512 * mib)
	hog := b.Scope("hog")
	if err := hog.Reserve(256 * mib); err != nil {
		t.Fatal(err)
	}
	err := hog.Reserve(1)
	if fault.KindOf(err) != fault.Full || fault.RetryAfterOf(err) <= 0 {
		t.Errorf("over its share: %v, want Full with a time to come back", err)
	}
	other := b.Scope("other")
	if err := other.Reserve(100 * mib); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if err := other.Reserve(100 * mib); fault.KindOf(err) != fault.Full {
		t.Errorf("more large bytes than are for all large scopes: %v", err)
	}
	hog.Release()
	if err := other.Reserve(100 * mib); err != nil {
		t.Errorf("after the other's release: %v", err)
	}
}

// Small scopes can reserve while large ones are refused, even for the caller that holds the large ones.
func TestSmallScopesGoOn(t *testing.T) {
	b := New(512 * mib)
	for _, name := range []string{"one", "two"} {
		for b.Scope(name).Reserve(32*mib) == nil {
		}
	}
	for i := range 1000 {
		s := b.Scope("one")
		if err := s.Reserve(64 << 10); err != nil {
			t.Fatalf("small scope %d: %v", i, err)
		}
		defer s.Release()
	}
	if st := b.Stats(); st.Held > st.Total || st.Refused == 0 {
		t.Errorf("%+v", st)
	}
}

// A released scope holds nothing and can reserve nothing, and its caller is removed.
func TestReleaseGivesEverythingBack(t *testing.T) {
	b := New(64 * mib)
	s := b.Scope("a")
	outlives := s.Sibling()
	_ = s.Reserve(10 * mib)
	_ = outlives.Reserve(1 * mib)
	s.Free(4 * mib)
	s.Release()
	s.Release()
	if err := s.Reserve(1); fault.KindOf(err) != fault.Full {
		t.Errorf("a released scope takes: %v", err)
	}
	if st := b.Stats(); st.Held != 1*mib || st.Callers != 1 {
		t.Errorf("%+v, want what the sibling holds", st)
	}
	if FromContext(NewContext(context.Background(), s)) != nil || FromContext(NewContext(context.Background(), outlives)) != outlives {
		t.Error("the scope of a request that is over is still found, or another is not")
	}
	outlives.Release()
	if st := b.Stats(); st.Held != 0 || st.Callers != 0 || len(b.callers) != 0 {
		t.Errorf("%+v, want nothing", st)
	}
}

// A nil budget and its nil scopes bound nothing.
func TestNilIsUnbounded(t *testing.T) {
	var b *Budget
	s := FromContext(NewContext(context.Background(), b.Scope("a")))
	if err := s.Reserve(1 << 50); err != nil || s.Sibling() != nil || b.Stats() != (Stats{}) {
		t.Errorf("%v", err)
	}
	s.Free(1)
	s.Release()
	if FromContext(context.Background()) != nil {
		t.Error("a scope out of nothing")
	}
}

// After any sequence of operations the totals are the sums of the scopes, and no bound is exceeded.
func TestSumsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(16 * mib)
		var scopes []*Scope
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(scopes) == 0 || rapid.Bool().Draw(t, "new") {
				scopes = append(scopes, b.Scope(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "caller"))))
			}
			s := scopes[rapid.IntRange(0, len(scopes)-1).Draw(t, "scope")]
			n := int64(rapid.OneOf(rapid.IntRange(1, 300<<10), rapid.IntRange(1, 9*mib)).Draw(t, "bytes"))
			switch rapid.IntRange(0, 7).Draw(t, "do") {
			case 0:
				s.Release()
			case 1:
				s.Free(n)
			case 2:
				_ = s.SetCaller(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "to caller")))
			case 3:
				_ = s.MoveTo(scopes[rapid.IntRange(0, len(scopes)-1).Draw(t, "to scope")], min(n, s.held))
			default:
				_ = s.Reserve(n)
			}
			check(t, b, scopes)
		}
		for _, s := range scopes {
			s.Release()
		}
		if st := b.Stats(); st.Held != 0 || len(b.callers) != 0 {
			t.Fatalf("%+v at the end", st)
		}
	})
}

func check(t *rapid.T, b *Budget, scopes []*Scope) {
	var small, large int64
	for _, s := range scopes {
		a, z := smallOrLarge(s.held)
		small, large = small+a, large+z
	}
	if small != b.small || large != b.large || small+large > b.total {
		t.Fatalf("counted %d + %d of %d, want %d + %d", b.small, b.large, b.total, small, large)
	}
	for name, c := range b.callers {
		if c.small < 0 || c.large < 0 || c.large > b.total/2 {
			t.Fatalf("caller %s: %d + %d", name, c.small, c.large)
		}
	}
}

func TestConcurrentScopes(t *testing.T) {
	b := New(64 * mib)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 500 {
				s := b.Scope(fmt.Sprint(i % 3))
				_ = s.Reserve(int64(1+i) * 100 << 10)
				s.Free(50 << 10)
				s.Release()
			}
		})
	}
	if wg.Wait(); b.Stats().Held != 0 {
		t.Errorf("%+v", b.Stats())
	}
}

func TestDefaultSize(t *testing.T) {
	if got := (Config{Total: 512 * mib}).Size(); got != 512*mib {
		t.Errorf("configured: %d", got)
	}
	if got := (Config{}).Size(); got < minDefault || got > maxDefault {
		t.Errorf("default: %d", got)
	}
	if got := runtimeLimit(512 * mib); got < 512*mib || got > 560*mib {
		t.Errorf("memory limit %d for 512 MiB", got)
	}
}
