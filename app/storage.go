package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/redis"
	"github.com/ctxgate/ctxgate/state/s3"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// Storage is the store and recall over it: all that `ctxgate recover` needs of the gateway.
type Storage struct {
	Store    *state.Store
	Shared   state.Shared // what replicas share beside the items; nil where the store is of one machine
	Recall   *recall.Recall
	Keys     *keyring.Keyring // of the tenants
	Root     []byte           // the secret that all keys are derived from
	OldRoots [][]byte         // earlier ones, whose tokens and texts are still read

	redisStatus func() redis.Status // nil if the store is not Redis
}

// Close closes the store.
func (s *Storage) Close() error { return s.Store.Close() }

// grants are the OAuth tokens of tenants and callers, which become unreadable when their tenant is forgotten.
func (s *Storage) grants() oauth.Grants {
	return oauth.Grants{
		Get: s.Keys.GetValue,
		Put: func(ctx context.Context, tenant, name string, value []byte) error {
			return s.Keys.PutValue(ctx, tenant, keyring.Value{Name: name, Data: value})
		},
		Touch: s.Keys.TouchValue,
		Drop:  s.Keys.DropValue,
	}
}

// What was found out about servers is kept for factsTTL, so that what a newer version of a server does is found out again.
const (
	factsTTL    = 30 * 24 * time.Hour
	factsPrefix = "server facts "
)

// loadFacts returns what was found out about a server; "" if nothing is known.
func (s *Storage) loadFacts(key string) string {
	facts, err := s.Store.Get(context.Background(), factsPrefix+key)
	if err != nil {
		return "" // it is found out again
	}
	return string(facts)
}

func (s *Storage) saveFacts(key, facts string) {
	item := state.Item{Key: factsPrefix + key, Group: factsPrefix + key, Value: []byte(facts)}
	if err := s.Store.WithTTL(factsTTL).Put(context.Background(), item); err != nil {
		slog.Debug("what was found out about a server was not stored", "error", err)
	}
}

// OpenStorage opens the configured store, and recall over it.
func OpenStorage(ctx context.Context, cfg config.Config) (*Storage, error) {
	return openStorage(ctx, cfg, openDriver)
}

func openStorage(ctx context.Context, cfg config.Config, openDriver func(context.Context, config.Config) (state.Driver, error)) (*Storage, error) {
	if err := fixModes(cfg); err != nil {
		return nil, err
	}
	roots, err := rootSecrets(cfg)
	if err != nil {
		return nil, err
	}
	driver, err := openDriver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	limits := cfg.State
	if limits.TenantShare == 0 && canHaveTenants(cfg.Auth) {
		limits.TenantShare = defaultTenantShare
	}
	store := state.New(driver, limits, time.Now)
	shared, _ := driver.(state.Shared)
	s := &Storage{Store: store, Shared: shared, Root: roots[0], OldRoots: roots[1:]}
	index := driver
	if d, ok := driver.(interface{ Index() state.Driver }); ok { // over it is the bucket of the originals
		index = d.Index()
	}
	if d, ok := index.(*redis.Driver); ok {
		s.redisStatus = d.Status
	}
	if s.Keys, err = keyring.New(store, s.Root, s.OldRoots...); err == nil {
		s.Recall, err = recall.WithKeyring(store, s.Keys, cfg.Recall)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// canHaveTenants reports whether callers can belong to several tenants.
func canHaveTenants(c auth.Config) bool {
	tenants := map[string]bool{}
	for _, t := range c.Tokens {
		tenants[cmp.Or(t.Tenant, auth.DefaultTenant)] = true
	}
	if c.Token.IsSet() {
		tenants[auth.DefaultTenant] = true
	}
	c.Token, c.Tokens = secret.Text{}, nil
	return len(tenants) > 1 || c.IsRequired() // by claims or certificates
}

// defaultTenantShare is state.tenant_share where callers can belong to several tenants.
const defaultTenantShare = 0.25

// openDriver opens the configured driver, and over it the bucket of the originals if there is one.
func openDriver(ctx context.Context, cfg config.Config) (state.Driver, error) {
	driver, err := openIndex(ctx, cfg)
	if err != nil || !cfg.State.Blobs.IsSet() {
		return driver, err
	}
	withBucket, err := s3.Open(driver, blobOptions(cfg))
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return withBucket, nil
}

// blobOptions are those of the bucket of the originals.
func blobOptions(cfg config.Config) s3.Options {
	return s3.Options{Config: cfg.State.Blobs, CacheDir: cmp.Or(cfg.State.Blobs.CacheDir, filepath.Join(cfg.DataDir, "blob-cache"))}
}

// RebuildIndex makes the pointers to all originals in the bucket again.
func RebuildIndex(ctx context.Context, cfg config.Config) (rebuilt s3.Rebuilt, err error) {
	driver, err := openIndex(ctx, cfg)
	if err != nil {
		return rebuilt, err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	return s3.Rebuild(ctx, driver, blobOptions(cfg))
}

// openIndex opens the configured driver.
func openIndex(ctx context.Context, cfg config.Config) (state.Driver, error) {
	switch cfg.State.Driver {
	case "memory":
		return memory.New(), nil
	case "redis":
		if !cfg.Secret.IsSet() {
			slog.WarnContext(ctx, "replicas that share a store need the same secret: set secret in all of them, or each has originals that the others cannot read")
		}
		return redis.Open(ctx, redis.Config{URL: cfg.State.URL.Reveal(), Durability: cfg.State.Durability})
	}
	return sqlite.OpenReopening(ctx, storePath(cfg))
}

// storePath is the path of the SQLite file.
func storePath(cfg config.Config) string {
	if cfg.State.Path != "" {
		return cfg.State.Path
	}
	return filepath.Join(cfg.DataDir, "ctxgate.db")
}

// fixModes removes other users' permissions from the data directory and the files in it. Files of another
// user are left with a warning, or rejected if everybody can write them.
func fixModes(cfg config.Config) error {
	type file struct {
		path string
		mode fs.FileMode
	}
	var files []file
	if cfg.DataDir != "" {
		files = append(files, file{filepath.Join(cfg.DataDir, "secret"), 0o600}, file{filepath.Join(cfg.DataDir, "admin-token"), 0o600})
		if containsWorkDir(cfg.DataDir) {
			slog.Warn("the data directory is the working directory or above it, so its permissions are not changed: set data_dir to a directory of its own", "data_dir", cfg.DataDir)
		} else {
			files = append(files, file{cfg.DataDir, 0o700})
		}
	}
	if cfg.State.Driver == "sqlite" {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			files = append(files, file{storePath(cfg) + suffix, 0o600})
		}
	}
	for _, p := range files {
		warning, err := secret.RestrictPermissions(p.path, p.mode)
		if err != nil {
			return err
		}
		if warning != "" {
			slog.Warn(warning)
		}
	}
	return nil
}

// containsWorkDir reports whether a directory is the working directory or above it: other users may need
// it.
func containsWorkDir(dir string) bool {
	here, err := os.Getwd()
	abs, bad := filepath.Abs(dir)
	if err != nil || bad != nil {
		return false
	}
	below, err := filepath.Rel(abs, here)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
}

func rootSecret(cfg config.Config) (secret.Text, error) {
	return loadOrGenerate(cfg.Secret, filepath.Join(cfg.DataDir, "secret"))
}

func adminToken(cfg config.Config) (secret.Text, error) {
	return loadOrGenerate(cfg.Admin.Token, filepath.Join(cfg.DataDir, "admin-token"))
}

// AdminToken is the token of the admin listener of a gateway that has run with this configuration. The error is
// fs.ErrNotExist if none has.
func AdminToken(cfg config.Config) (secret.Text, error) {
	if cfg.Admin.Token.IsSet() {
		return cfg.Admin.Token, nil
	}
	return readSecretFile(filepath.Join(cfg.DataDir, "admin-token"))
}

// loadOrGenerate returns the configured secret, or the one in the file path, which it generates if it does
// not exist. Several processes may start at once: the first to link its file into place wins, and all read
// that one.
func loadOrGenerate(configured secret.Text, path string) (secret.Text, error) {
	if configured.IsSet() {
		return configured, nil
	}
	stored, err := readSecretFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return stored, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return secret.Text{}, fmt.Errorf("creating the data directory: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return secret.Text{}, fmt.Errorf("creating %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(random) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return secret.Text{}, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return secret.Text{}, fmt.Errorf("creating %s: %w", path, err)
	}
	return readSecretFile(path)
}

func readSecretFile(path string) (secret.Text, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return secret.Text{}, fmt.Errorf("reading a secret: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if len(text) < recall.MinSecretBytes {
		return secret.Text{}, fmt.Errorf("%s does not hold a secret of at least %d bytes: remove the file, and a new secret is generated", path, recall.MinSecretBytes)
	}
	secret.Register(text)
	return secret.Literal(text), nil
}
