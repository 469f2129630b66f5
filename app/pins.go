package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/state"
)

const (
	pinsPrefix = "pins "
	pinsTTL    = 10 * 365 * 24 * time.Hour

	maxLockBytes = 64 << 20
)

// loadPins returns what was approved of a server's tools; nil if nothing was.
func (s *Storage) loadPins(ctx context.Context, server string) ([]byte, error) {
	record, err := s.Store.Get(ctx, pinsPrefix+server)
	if fault.KindOf(err) == fault.UnknownHandle {
		return nil, nil
	}
	return record, err
}

// savePins stores what was approved. It is not evicted: what is seen after that would be approved as new.
func (s *Storage) savePins(ctx context.Context, server string, record []byte) error {
	item := state.Item{Key: pinsPrefix + server, Group: pinsPrefix + server, Value: record, Pinned: true, Archived: true}
	return s.Store.WithTTL(pinsTTL).Put(ctx, item)
}

// LoadLock reads the file of approved definitions, if the configuration uses it. Without the file nothing is approved.
func LoadLock(cfg pins.Config) (pins.Lock, error) {
	if cfg.Mode != pins.ModeLock {
		return nil, nil
	}
	lock, err := ReadLock(cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		slog.Warn("pins.mode is \"lock\", and there is no file of approved definitions: no tool is served; 'ctxgate pin --init' writes the file", "file", cfg.File)
		return nil, nil
	}
	return lock, err
}

// ReadLock reads a file of approved definitions.
func ReadLock(path string) (pins.Lock, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxLockBytes {
		err = fmt.Errorf("%s is larger than %d MiB", path, maxLockBytes>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("pins.file: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("pins.file: %w", err)
	}
	lock, err := pins.ParseLock(data)
	if err != nil {
		return nil, fmt.Errorf("pins.file: %s: %w", path, err)
	}
	return lock, nil
}

// newPins makes the guard of all definitions.
func (a *App) newPins() (err error) {
	if a.lock, err = LoadLock(a.cfg.Pins); err != nil {
		return err
	}
	a.pins = pins.NewGuard(a.cfg.Pins, a.lock, pins.Deps{Load: a.storage.loadPins, Save: a.storage.savePins, ReadOnly: a.opts.readOnlyPins, OnPin: recordPins(a.audit)})
	return nil
}

// applyPins puts a configuration and a lock into force, and returns a function that puts the old ones back.
func (a *App) applyPins(cfg pins.Config, lock pins.Lock) (undo func()) {
	if a.pins == nil {
		return func() {}
	}
	before, old := a.pins.Config(), a.lock
	apply := func(cfg pins.Config, lock pins.Lock) {
		a.lock = lock
		if a.pins.Apply(cfg, lock) {
			a.hub.PinsChanged()
		}
	}
	apply(cfg, lock)
	return func() { apply(before, old) }
}

// ProbePins starts every server, tells the watcher what each of them is, says what they have and what is held back of it,
// and stops them. It approves nothing.
func ProbePins(ctx context.Context, cfg config.Config, opts Options, watch hub.ProbeWatcher) (pins.Report, error) {
	opts.readOnlyPins = true
	a := &App{cfg: cfg, opts: opts}
	if cfg.Pins.Mode != pins.ModeFirstUse {
		a.cfg.State.Driver = "memory" // nothing of the store is needed
	}
	a.cfg.Audit.Path = "" // no client calls
	if err := a.build(ctx, false); err != nil {
		return pins.Report{}, errors.Join(err, a.release())
	}
	a.hub.ExpectCapableClients()
	a.hub.Start()
	a.hub.Probe(ctx, watch)
	report := a.hub.PinReport(ctx)
	return report, a.release()
}

// ApprovePins approves definitions in the store while no gateway runs.
func ApprovePins(ctx context.Context, cfg config.Config, approvals []pins.Approval) error {
	storage, err := OpenStorage(ctx, cfg)
	if err != nil {
		return err
	}
	log, err := OpenAudit(cfg, os.Stderr)
	if err != nil {
		return errors.Join(err, storage.Close())
	}
	guard := pins.NewGuard(cfg.Pins, nil, pins.Deps{Load: storage.loadPins, Save: storage.savePins, OnPin: recordPins(log)})
	return errors.Join(guard.Approve(ctx, approvals), log.Close(), storage.Close())
}
