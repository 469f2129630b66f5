package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/pins"
)

func (a *App) auditOptions() audit.Options {
	return audit.Options{Dir: a.cfg.DataDir, Roots: append([][]byte{a.storage.Root}, a.storage.OldRoots...), Stdout: a.opts.Stdout}
}

func (a *App) applyAudit(cfg config.Config) error { return a.audit.Apply(cfg.Audit) }

// auditEvent is the line about a reload. It names keys, never values.
func (r ReloadReport) auditEvent() *audit.Event {
	e := &audit.Event{Kind: audit.KindReload, Decision: "allow", Outcome: "ok", Reason: strings.Join(r.Applied, " "), Count: int64(len(r.Applied))}
	if r.Failed != "" {
		e.Decision, e.Outcome, e.Reason = "deny", "failed", r.Failed
	}
	return e
}

// recordPins records what happens to definitions of tools.
func recordPins(log *audit.Log) func(pins.Event) {
	return func(e pins.Event) {
		log.Record(&audit.Event{Kind: audit.KindAdmin, Method: "pin " + e.Action, Server: e.Server, Tool: e.Tool, Rule: e.Hash, Reason: string(e.Reason)})
	}
}

// OpenAudit opens the audit log for a command, which may run beside the gateway. Where the gateway's lines go to its
// stdout, the command's go to stderr.
func OpenAudit(cfg config.Config, stderr io.Writer) (*audit.Log, error) {
	roots, err := rootSecrets(cfg)
	if err != nil {
		return nil, err
	}
	return audit.Open(cfg.Audit, audit.Options{Dir: cfg.DataDir, Roots: roots, Stdout: stderr, Command: true})
}

// VerifyAudit checks an audit log of the gateway with this configuration. It creates no secret.
func VerifyAudit(cfg config.Config, opts audit.VerifyOptions) (*audit.Report, error) {
	if !cfg.Secret.IsSet() {
		if _, err := readSecretFile(filepath.Join(cfg.DataDir, "secret")); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no secret to check the audit log with: no gateway has run with the data directory %s", cfg.DataDir)
		}
	}
	roots, err := rootSecrets(cfg)
	if err != nil {
		return nil, err
	}
	opts.Roots, opts.Dir = roots, cfg.DataDir
	return audit.Verify(cfg.Audit, opts)
}

// rootSecrets are the secrets that keys are derived from, the current one first.
func rootSecrets(cfg config.Config) ([][]byte, error) {
	root, err := rootSecret(cfg)
	if err != nil {
		return nil, err
	}
	roots := [][]byte{[]byte(root.Reveal())}
	for _, old := range cfg.OldSecrets {
		roots = append(roots, []byte(old.Reveal()))
	}
	return roots, nil
}
