package app

import (
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

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// OpenVault opens the store that the configuration names, and recall over it.
func OpenVault(ctx context.Context, cfg config.Config) (*Vault, error) {
	if err := mendModes(cfg); err != nil {
		return nil, err
	}
	root, err := rootSecret(cfg)
	if err != nil {
		return nil, err
	}
	driver, err := openDriver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	store := state.New(driver, cfg.State, time.Now)
	r, err := recall.New(store, []byte(root.Reveal()), cfg.Recall)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Vault{Store: store, Recall: r, Root: []byte(root.Reveal())}, nil
}

// lasting is recall over the same store with a lifetime of its own.
func (v *Vault) lasting(cfg config.Config, ttl time.Duration) (*recall.Recall, error) {
	return recall.New(v.Store.Lasting(ttl), v.Root, cfg.Recall)
}

func openDriver(ctx context.Context, cfg config.Config) (state.Driver, error) {
	switch cfg.State.Driver {
	case "memory":
		return memory.New(), nil
	case "sqlite":
		return sqlite.Follow(ctx, storePath(cfg))
	}
	return nil, fmt.Errorf("the store %q is not in this version", cfg.State.Driver)
}

// storePath is the SQLite file.
func storePath(cfg config.Config) string {
	if cfg.State.Path != "" {
		return cfg.State.Path
	}
	return filepath.Join(cfg.DataDir, "ctxgate.db")
}

// mendModes takes the rights of others from the data directory and from what is kept in it. What is
// another user's is left and said, or refused where everybody can change it.
func mendModes(cfg config.Config) error {
	type place struct {
		path string
		mode fs.FileMode
	}
	var places []place
	if cfg.DataDir != "" {
		places = append(places, place{filepath.Join(cfg.DataDir, "secret"), 0o600}, place{filepath.Join(cfg.DataDir, "admin-token"), 0o600})
		if isAbove(cfg.DataDir) {
			slog.Warn("the data directory is the working directory or above it, so its mode is left as it is: name one of its own", "data_dir", cfg.DataDir)
		} else {
			places = append(places, place{cfg.DataDir, 0o700})
		}
	}
	if cfg.State.Driver == "sqlite" {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			places = append(places, place{storePath(cfg) + suffix, 0o600})
		}
	}
	for _, p := range places {
		said, err := secret.Mend(p.path, p.mode)
		if err != nil {
			return err
		}
		if said != "" {
			slog.Warn(said)
		}
	}
	return nil
}

// isAbove says that a folder is where the process works, or above that: not one to close to others.
func isAbove(dir string) bool {
	here, err := os.Getwd()
	abs, bad := filepath.Abs(dir)
	if err != nil || bad != nil {
		return false
	}
	below, err := filepath.Rel(abs, here)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
}

func rootSecret(cfg config.Config) (secret.Text, error) {
	return keptOr(cfg.Secret, filepath.Join(cfg.DataDir, "secret"))
}

func adminToken(cfg config.Config) (secret.Text, error) {
	return keptOr(cfg.Admin.Token, filepath.Join(cfg.DataDir, "admin-token"))
}

// keptOr is the configured secret, or the one in path, which is made when it is not there.
// Several processes may start at once: the first to link its file into place wins, and all
// read that one.
func keptOr(configured secret.Text, path string) (secret.Text, error) {
	if configured.IsSet() {
		return configured, nil
	}
	kept, err := readKept(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return secret.Text{}, fmt.Errorf("making the data directory: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return secret.Text{}, fmt.Errorf("making %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(random) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return secret.Text{}, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return secret.Text{}, fmt.Errorf("making %s: %w", path, err)
	}
	return readKept(path)
}

func readKept(path string) (secret.Text, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return secret.Text{}, fmt.Errorf("reading a secret: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if len(text) < recall.MinSecret {
		return secret.Text{}, fmt.Errorf("%s holds no secret of at least %d bytes; remove it and one is made", path, recall.MinSecret)
	}
	secret.Remember(text)
	return secret.Literal(text), nil
}
