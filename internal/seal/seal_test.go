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

// While root secrets are rotated, tokens of the old one are opened and new ones are made with the new one.
func TestRotation(t *testing.T) {
	before, after := open(t, 1, "session"), open(t, 2, "session")
	rotating, err := New(bytes.Repeat([]byte{2}, 32), "session", bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{3}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Sealer{"old": before, "new": after, "oldest": open(t, 3, "session")} {
		if got, err := rotating.Open(s.Seal([]byte(name))); err != nil || string(got) != name {
			t.Errorf("a token of the %s secret: %q, %v", name, got, err)
		}
	}
	token := rotating.Seal([]byte("payload"))
	if got, err := after.Open(token); err != nil || string(got) != "payload" {
		t.Errorf("a new token: %q, %v", got, err)
	}
	for name, s := range map[string]*Sealer{"old": before, "unlisted": open(t, 4, "session")} {
		if _, err := s.Open(token); !errors.Is(err, ErrInvalid) {
			t.Errorf("with the %s secret: %v", name, err)
		}
		if _, err := rotating.Open(open(t, 4, "session").Seal(nil)); !errors.Is(err, ErrInvalid) {
			t.Errorf("a token of an unlisted secret: %v", err)
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
