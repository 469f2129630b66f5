package upstream_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// clientOf is a client of a revision with some capabilities.
func clientOf(version, capabilities string) mcp.Client {
	return mcp.Client{Version: version, Capabilities: []byte(capabilities)}
}

// greetings are the words of a log that say how often a program was started and how it was greeted.
func greetings(t *testing.T, log string) string {
	t.Helper()
	until(t, "it has begun", func() bool {
		_, err := os.Stat(log)
		return err == nil
	})
	var out []string
	for _, line := range logged(t, log) {
		if line == "start" || line == "got "+mcp.Initialize || line == "got "+mcp.Discover {
			out = append(out, strings.TrimPrefix(line, "got "))
		}
	}
	return strings.Join(out, ", ")
}

func eraOf(t *testing.T, l *upstream.Lane) mcp.Era {
	t.Helper()
	conn, err := l.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn.Hello().Era
}

// A program that speaks both eras is started a second time for a session of the older era that it could
// ask, and for no other client.
func TestProgramOfBothEras(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launch(t, program("modern", "log="+log), nil)
	eraOf(t, n.Shared())
	for _, who := range []upstream.Who{
		{Client: clientOf(mcp.V20260728, `{"sampling":{}}`), Subject: "me"}, {Client: clientOf(mcp.V20251125, `{}`), Session: "1"},
	} {
		if l, _, err := n.Pick(t.Context(), who); err != nil || !l.Shared() {
			t.Errorf("%+v does not share: %v", who, err)
		}
	}
	who := upstream.Who{Client: clientOf(mcp.V20251125, `{"sampling":{}}`), Session: "1"}
	for range 2 {
		l, _, err := n.Pick(t.Context(), who)
		if err != nil || l.Shared() || eraOf(t, l) != mcp.EraLegacy {
			t.Errorf("the session of the older era: %v", err)
		}
	}
	if got, want := greetings(t, log), "start, server/discover, start, initialize"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A program that refuses or does not survive initialize is tried once.
func TestProgramOfTheNewerEraOnlyIsTriedOnce(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refuse", "faint"} {
		log := filepath.Join(t.TempDir(), "log")
		n := launch(t, program("modern", how, "log="+log), nil)
		eraOf(t, n.Shared())
		for _, session := range []string{"1", "2"} {
			l, _, err := n.Pick(t.Context(), upstream.Who{Client: clientOf(mcp.V20251125, `{"sampling":{}}`), Session: session})
			if err != nil || !l.Shared() || eraOf(t, l) != mcp.EraModern {
				t.Errorf("%s: the session does not share: %v", how, err)
			}
		}
		if got, want := greetings(t, log), "start, server/discover, start, initialize"; got != want {
			t.Errorf("%s: got %s, want %s", how, got, want)
		}
		if n.count.Load() != 0 {
			t.Errorf("%s: %d connections were lost", how, n.count.Load())
		}
	}
}

// The only client of a gateway has its programs greeted in its era, each started once. One that does not
// survive the older greeting gets the newer one at its next start.
func TestOnlyClientOfPrograms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flags   []string
		version string
		era     mcp.Era
		want    string
	}{
		"both eras, older client":  {[]string{"modern"}, mcp.V20251125, mcp.EraLegacy, "start, initialize"},
		"both eras, newer client":  {[]string{"modern"}, mcp.V20260728, mcp.EraModern, "start, server/discover"},
		"older only, older client": {nil, mcp.V20251125, mcp.EraLegacy, "start, initialize"},
		"older only, newer client": {nil, mcp.V20260728, mcp.EraLegacy, "start, server/discover, initialize"},
		"newer only, older client": {[]string{"modern", "refuse"}, mcp.V20251125, mcp.EraModern, "start, initialize, server/discover"},
		"falls over initialize":    {[]string{"modern", "faint"}, mcp.V20251125, mcp.EraModern, "start, initialize, start, server/discover"},
		"neither": {[]string{"refuse"}, mcp.V20251125, 0,
			"start, initialize, server/discover, start, server/discover, initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			n := assemble(t, program(slices.Concat(tt.flags, []string{"log=" + log})...), quick(20*time.Second, time.Second))
			n.StartFor(clientOf(tt.version, `{}`), &peer{})
			if tt.era == 0 {
				until(t, "it was greeted in both orders", func() bool { return strings.HasPrefix(greetings(t, log), tt.want) })
				return
			}
			if got := eraOf(t, n.Shared()); got != tt.era {
				t.Errorf("got %s, want %s", got, tt.era)
			}
			if got := greetings(t, log); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
