package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config says where originals are stored, for how long, and how many.
type Config struct {
	// Where originals are stored: "sqlite" (one file, shared by all processes on one machine), "memory"
	// (this process only, lost when it ends) or "redis" (shared by replicas). Default "sqlite".
	Driver string `key:"driver"`

	// The SQLite file; "~", "$HOME" and a path relative to the config file work. It must be on a local disk,
	// not on a network share. Missing directories are created
	// with mode 0700, the file with 0600. Default empty: ctxgate.db in the user's data directory.
	Path string `key:"path"`

	// The Redis or Valkey server, with the redis driver: redis://user:password@host:6379/0, or rediss:// for TLS. Several hosts
	// are nodes of a Cluster (redis://a:6379,b:6379; one that finds the others is enough), and redis+sentinel://a:26379,b:26379/NAME
	// names Sentinels and the primary that they watch. Options: prefix of all keys ("ctxgate:"), sentinel_username, sentinel_password,
	// tls_ca, tls_cert, tls_key (files), tls_server_name, as in ?prefix=x&tls_ca=/etc/ca.pem. The servers must have maxmemory-policy
	// noeviction. "env:NAME" and "file:PATH" work. Default empty.
	URL secret.Text `key:"url" literal:"ok"`

	// When Redis has stored a text so that its id may be shown. "wait-all": when the primary and all its replicas have it on their
	// disks; the servers need appendonly yes and appendfsync always, and while a replica is missing nothing is kept and texts are
	// sent whole. A failed replica counts until it is back, or until it is removed (SENTINEL RESET, CLUSTER FORGET). "server": when
	// the server says so, for a managed service whose log is durable. "none": the same, and a failover or a power cut may lose
	// texts whose ids were shown. Default "wait-all".
	Durability string `key:"durability" oneof:"wait-all,server,none"`

	// How long an original can be read back after it was last shown; a duration. Default 7d. Must be
	// positive.
	TTL unit.Duration `key:"ttl"`

	// The most bytes that are stored; a size. Above 95 % of it, the originals that were not shown for the
	// longest time are removed in the background, down to 90 %. OAuth tokens of servers do not count and
	// are never removed for originals; they may use another 8MiB. Default 1GiB. Must be positive.
	MaxBytes unit.Bytes `key:"max_bytes"`

	// The part of max_bytes that the originals of one tenant may use, from 0 to 1. A tenant that has used it
	// up loses its own originals, those that were not shown for the longest time first, and never another's;
	// if all of them were shown within spare, its new texts are sent uncut. Default 0: 0.25 where callers can belong
	// to several tenants, otherwise 1, which is no limit.
	TenantShare float64 `key:"tenant_share" min:"0" max:"1"`

	// Originals that were shown within this time are never removed to make room; if nothing else is left,
	// new texts are sent uncut instead. A duration. Default 1h. With 0, all may be removed.
	Spare unit.Duration `key:"spare"`

	// How long one operation of the store may take before the text is sent uncut; a duration. Default 2s.
	// Must be positive.
	Timeout unit.Duration `key:"timeout"`

	// Originals in a bucket, apart from what is small. Absent: they are in the driver above.
	Blobs Blobs `key:"blobs"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Driver:     "sqlite",
		Durability: "wait-all",
		TTL:        unit.Duration(7 * 24 * time.Hour),
		MaxBytes:   1 << 30,
		Spare:      unit.Duration(time.Hour),
		Timeout:    unit.Duration(2 * time.Second),
		Blobs:      Blobs{CacheBytes: 1 << 30},
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	switch c.Driver {
	case "memory", "sqlite":
	case "redis":
		if !c.URL.IsSet() {
			problems = append(problems, errors.New("url: is required with driver = \"redis\""))
		}
	default:
		problems = append(problems, fmt.Errorf("driver: %q is not one of memory, sqlite, redis", c.Driver))
	}
	// A lease counts in milliseconds, so a shorter ttl would be none.
	if c.TTL.D() < time.Millisecond {
		problems = append(problems, errors.New("ttl: must be positive"))
	}
	if c.MaxBytes <= 0 {
		problems = append(problems, errors.New("max_bytes: must be positive"))
	}
	if c.Spare < 0 {
		problems = append(problems, errors.New("spare: must not be negative"))
	}
	if c.Timeout <= 0 {
		problems = append(problems, errors.New("timeout: must be positive"))
	}
	for _, problem := range c.Blobs.Validate() {
		problems = append(problems, fmt.Errorf("blobs.%w", problem))
	}
	return problems
}
