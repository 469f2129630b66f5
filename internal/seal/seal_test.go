package seal

import (
	"bytes"
	"errors"
	"testing"
)

func open(t *testing.T, root byte, purpose string) *Sealer {
	t.Helper()
	s, err := New(bytes.Repeat([]byte{root}, 32), purpose)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoundTrip(t *testing.T) {
	s, again := open(t, 1, "session"), open(t, 1, "session")
	for _, plain := range []string{"", "x", `{"tenant":"a"}`} {
		token := s.Seal([]byte(plain))
		got, err := again.Open(token)
		if err != nil || string(got) != plain {
			t.Errorf("%q: got %q, %v", plain, got, err)
		}
	}
}

// S17: a token of another key, of another purpose, or changed in any bit is refused.
func TestForeignAndChangedTokens(t *testing.T) {
	s := open(t, 1, "session")
	token := s.Seal([]byte("payload"))
	for name, other := range map[string]*Sealer{"key": open(t, 2, "session"), "purpose": open(t, 1, "state")} {
		if _, err := other.Open(token); !errors.Is(err, ErrInvalid) {
			t.Errorf("another %s: got %v", name, err)
		}
	}
	for i := range token {
		for _, c := range []byte("A9_") {
			changed := token[:i] + string(c) + token[i+1:]
			if got, err := s.Open(changed); changed != token && err == nil && i < len(token)-1 {
				t.Errorf("changed at %d: opened as %q", i, got)
			}
		}
	}
	for _, bad := range []string{"", "x", "AAAA", token + "A", token[:20], "é"} {
		if _, err := s.Open(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	s, err := New(bytes.Repeat([]byte{1}, 32), "session")
	if err != nil {
		f.Fatal(err)
	}
	token := s.Seal([]byte("payload"))
	f.Add(token)
	f.Fuzz(func(t *testing.T, in string) {
		if got, err := s.Open(in); err == nil && string(got) != "payload" {
			t.Errorf("%q opened as %q", in, got)
		}
	})
}
