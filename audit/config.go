package audit

import (
	"strings"

	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config says where the audit log goes.
type Config struct {
	// Where audit lines go: a file ("~", "$HOME" and a path relative to the config file work; created with mode 0600),
	// "-" for stdout (ctxgate serve only), or "syslog:" for the local syslog daemon as RFC 5424 messages
	// ("syslog:/path" names its socket). One line of JSON per decision: who, tenant, method, target, decision, rule,
	// sizes, ids; never contents, arguments or tokens. `ctxgate audit verify` checks that no line was changed or
	// removed. Several processes may write the same log. Default empty: no audit log.
	Path string `key:"path"`

	// A file is rotated before it would be larger than this; a size. A rotated file has the number of its first line
	// as its suffix. Default 64MiB. At least 64KiB.
	MaxSize unit.Bytes `key:"max_size" min:"64KiB"`

	// How many rotated files are kept; older ones are removed. Default 10. With 0, all are kept.
	Keep int `key:"keep" min:"0"`

	// When the file is forced to disk: "always" (after each write), "interval" (every second) or "none" (the operating
	// system decides). It matters only when the machine stops, not when ctxgate does. Default "interval".
	Sync string `key:"sync" oneof:"always,interval,none"`

	// What happens to requests while lines cannot be written, because the disk is full or nobody reads stdout:
	// "continue" (they pass; the next line that can be written says how many decisions are missing) or "deny" (a call
	// is made only after its line was written; such a call has a second line at its end). Default "continue".
	OnFailure string `key:"on_failure" oneof:"continue,deny"`
}

// The values of Sync and OnFailure.
const (
	SyncAlways   = "always"
	SyncInterval = "interval"
	SyncNone     = "none"

	Continue = "continue"
	Deny     = "deny"
)

const (
	stdoutPath   = "-"
	syslogPrefix = "syslog:"
)

// Default is the configuration of an empty file.
func Default() Config {
	return Config{MaxSize: 64 << 20, Keep: 10, Sync: SyncInterval, OnFailure: Continue}
}

// IsFile says that the path is the path of a file.
func (c Config) IsFile() bool {
	return c.Path != "" && c.Path != stdoutPath && !strings.HasPrefix(c.Path, syslogPrefix)
}

// minFileSize is more than the longest line.
const minFileSize = 64 << 10
