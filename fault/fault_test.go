package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestKindOf(t *testing.T) {
	cause := errors.New("dial tcp 10.0.0.1:9: refused")
	for _, tt := range []struct {
		name   string
		err    error
		want   Kind
		public string
	}{
		{"classified", Wrap(Unavailable, "server is unavailable", cause), Unavailable, "server is unavailable"},
		{"wrapped", fmt.Errorf("calling x: %w", New(NotFound, "unknown server")), NotFound, "unknown server"},
		{"no fault", cause, Internal, "internal error"},
		{"canceled", fmt.Errorf("reading: %w", context.Canceled), Canceled, "internal error"},
		{"deadline", context.DeadlineExceeded, Timeout, "internal error"},
		{"outermost decides", Wrap(BadReply, "bad", New(NotFound, "inner")), BadReply, "bad"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := KindOf(tt.err); got != tt.want {
				t.Errorf("KindOf = %v, want %v", got, tt.want)
			}
			if got := PublicOf(tt.err); got != tt.public {
				t.Errorf("PublicOf = %q, want %q", got, tt.public)
			}
			if strings.Contains(PublicOf(tt.err), "10.0.0.1") {
				t.Error("the cause leaked into the public text")
			}
		})
	}
}

func TestEveryKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		name := k.String()
		if name == "" || seen[name] {
			t.Errorf("kind %d: name %q is empty or taken", k, name)
		}
		seen[name] = true
	}
	if got := Kind(200).String(); got != "kind(200)" {
		t.Errorf("unknown kind prints %q", got)
	}
}

func TestErrorTextAndUnwrap(t *testing.T) {
	cause := errors.New("cause")
	err := Wrap(Full, "store is full", cause)
	if err.Error() != "store is full: cause" || !errors.Is(err, cause) {
		t.Errorf("got %q", err.Error())
	}
	if New(Full, "only").Error() != "only" {
		t.Error("an error without a cause is its public text")
	}
}

func TestErrorSaysNothingTwice(t *testing.T) {
	inner := Wrap(Unavailable, "the server is not available", errors.New("connection refused"))
	for _, cause := range []error{inner, New(Unavailable, "the server is not available"), errors.New("the server is not available to you")} {
		got := Wrap(Unavailable, "the server is not available", cause).Error()
		want := cause.Error()
		if strings.HasSuffix(want, "to you") {
			want = "the server is not available: " + want
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aé", 2, "a…"},
		{"éé", 3, "é…"},
	} {
		if got := ClipTo(tt.text, tt.n); got != tt.want {
			t.Errorf("ClipTo(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
	if got := Clip(strings.Repeat("x", 200)); got != strings.Repeat("x", 128)+"…" {
		t.Errorf("Clip of 200 bytes = %q", got)
	}
}
