package app

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
)

const (
	maxLogValue = 2 << 10  // bytes of a value in the log
	maxLogStack = 16 << 10 // bytes of a stack, without which a panic cannot be understood
)

// NewLogger makes the configured logger. It replaces secrets by *** and shortens long values: errors and
// names may contain what clients and servers sent.
func NewLogger(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // validated when it was loaded
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: cleanAttr}
	if cfg.Structured {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// cleanAttr redacts and shortens one value; handlers call it for the message and for each value of a group.
func cleanAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(cleanText(a.Key, a.Value.String()))
	case slog.KindAny:
		var printed string
		switch v := a.Value.Any().(type) {
		case error:
			printed = fmt.Sprint(v) // unlike v.Error() it does not panic on a nil pointer
		case []byte:
			printed = string(v)
		default:
			printed = fmt.Sprintf("%+v", v)
		}
		if clean := cleanText(a.Key, printed); clean != printed {
			a.Value = slog.StringValue(clean)
		}
	}
	if len(a.Key) > maxLogValue {
		a.Key = cutText(a.Key, maxLogValue)
	}
	return a
}

func cleanText(key, s string) string {
	most := maxLogValue
	if key == "stack" {
		most = maxLogStack
	}
	if len(s) > 2*most { // shorten it before searching for secrets
		shown := cutText(secret.RedactPrefix(s[:2*most]), most)
		return shown + more(len(s)-most)
	}
	s = secret.Redact(s)
	if len(s) <= most {
		return s
	}
	return cutText(s, most) + more(len(s)-most)
}

// cutText is the start of a text, without half a character at its end.
func cutText(s string, most int) string { return strings.ToValidUTF8(s[:min(most, len(s))], "") }

func more(n int) string { return "… (" + strconv.Itoa(n) + " bytes more)" }
