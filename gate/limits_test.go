package gate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
)

func newLimiter(entries ...limit.Entry) *limit.Limiter {
	for i := range entries {
		entries[i].Every, entries[i].Per = unit.Duration(time.Hour), "tenant"
	}
	return limit.New(limit.Config{Limits: entries}, time.Now)
}

// Calls that may pass count against the limits of their target, and hold their slot until they are done.
func TestEnterCountsTargets(t *testing.T) {
	g := New(Deps{Limiter: newLimiter(limit.Entry{Server: "fs", Rate: 3, Concurrency: 1}, limit.Entry{Model: "kimi", Rate: 1}, limit.Entry{Tool: "x", Rate: 2})})
	ctx, who := context.Background(), auth.LocalCaller()
	first, err := g.Enter(ctx, who, access.Target{Server: "fs", Tool: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Enter(ctx, who, access.Target{Server: "fs"}); fault.KindOf(err) != fault.RateLimited {
		t.Errorf("a second call in flight: %v", err)
	}
	first.Done()
	first.Done()
	for i, want := range []bool{true, false} { // two calls of x, three of fs
		p, err := g.Enter(ctx, who, access.Target{Server: "fs", Tool: "x"})
		if (err == nil) != want {
			t.Errorf("call %d: %v", i, err)
		}
		if p != nil {
			p.Done()
		}
	}
	for i, want := range []bool{true, false} {
		if _, err := g.Enter(ctx, who, access.Target{Model: "kimi"}); (err == nil) != want {
			t.Errorf("model request %d: %v", i, err)
		}
	}
}

// What the rules deny uses up no limit of its target, and is answered as denied.
func TestDeniedCallsUseNoLimit(t *testing.T) {
	limiter := newLimiter(limit.Entry{Server: "fs", Rate: 1, Concurrency: 1})
	rules, err := access.New(access.Config{Default: "deny"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, who, fs := context.Background(), auth.LocalCaller(), access.Target{Server: "fs"}
	for range 5 {
		if _, err := New(Deps{Rules: rules, Limiter: limiter}).Enter(ctx, who, fs); !errors.Is(err, ErrDenied) {
			t.Fatalf("%v, want denied", err)
		}
	}
	if _, err := New(Deps{Limiter: limiter}).Enter(ctx, who, fs); err != nil {
		t.Errorf("a call that is allowed: %v", err)
	}
}

// Messages count against the limits of their caller, which know its credential.
func TestAdmitCountsMessages(t *testing.T) {
	g := New(Deps{Limiter: newLimiter(limit.Entry{Tenant: "default", Credential: "local", Rate: 2})})
	for i, want := range []bool{true, true, false} {
		if err := g.Admit(auth.LocalCaller()); (err == nil) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if err := New(Deps{}).Admit(auth.LocalCaller()); err != nil {
		t.Errorf("no limits: %v", err)
	}
}
