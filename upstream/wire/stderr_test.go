package wire

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A line of a program's stderr is logged at the level that it names itself.
func TestStderrLevel(t *testing.T) {
	const debug, info, warn, fail = slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError
	for line, want := range map[string]slog.Level{
		"listening on stdio": info, "": info, "ERROR cannot read": fail, "error: cannot read": fail, "Error: cannot read": fail, "[ERROR] x": fail, "[warn] x": warn,
		"WARN x": warn, "WARNING: x": warn, "warning: x": warn, "DEBUG:root:x": debug, "debug: x": debug, "[DEBUG] x": debug, "INFO x": info, "FATAL x": fail, "panic: x": fail,
		"2026-01-02 03:04:05,678 - mcp.server - WARNING - x": warn, "2026-01-02T03:04:05Z ERROR x": fail, "2026/01/02 03:04:05 INFO x": info, "2026-01-02T03:04:05.123Z [error] x": fail,
		"time=2026-01-02T03:04:05Z level=ERROR msg=x": fail, "level=debug msg=x": debug, `{"level":"error","msg":"x"}`: fail, `{"time":1,"severity":"WARNING"}`: warn,
		`{"level":50,"msg":"pino"}`: fail, `{"level":20}`: debug, `{"msg":"error"}`: info, "no error here, just a text": info, "errors: 0": info, "Errors are fine": info,
		"the last ERROR was long ago": info, "INFORMATION x": info, "mcp.server: WARNING x": warn,
	} {
		if got := stderrLevel(line); got != want {
			t.Errorf("%q is %s, want %s", line, got, want)
		}
	}
	began := time.Now()
	for _, s := range []string{"1 ", "a ", "- ", "{", `{"level"`, "T"} {
		stderrLevel(strings.Repeat(s, 2048))
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("long lines took %s", took)
	}
}
