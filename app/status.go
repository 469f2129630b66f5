package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/budget"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
)

// status is the gateway as a person wants to see it.
func (a *App) status(r *http.Request) admin.Status {
	a.mu.Lock()
	cfg := a.cfg
	a.mu.Unlock()
	s := admin.Status{
		Version: a.opts.Version, PID: os.Getpid(), Started: a.started, Profile: cfg.Profile, Draining: a.ready.IsDraining(),
		Listeners: []admin.Listener{}, Servers: []admin.Server{}, Clients: []admin.Client{},
	}
	if a.opts.Source != nil {
		s.Config = a.opts.Source.File
		if abs, err := filepath.Abs(s.Config); err == nil {
			s.Config = abs
		}
	}
	if socket := a.opts.Socket; socket != nil && socket.Background {
		s.Background, s.Log = true, socket.Program.Endpoint.Log
	}
	for i, l := range a.listeners {
		s.Listeners = append(s.Listeners, admin.Listener{Name: a.listenerNames[i], Address: l.Addr().String()})
	}
	for _, h := range a.hub.ServerStatuses() {
		transport := h.Transport
		if h.IsBuiltin {
			transport = "builtin"
		}
		s.Servers = append(s.Servers, admin.Server{
			ID: h.ID, Transport: transport, State: string(h.State), Since: h.Since, Revision: h.Revision,
			Tools: h.Tools, Held: h.Held, Prompts: h.Prompts, Resources: h.Resources + h.Templates,
			Restarts: h.Restarts, LastError: h.LastError, LastErrorAt: h.LastErrorAt, LastStderr: h.LastStderr, NextAttempt: h.NextAttempt,
			OwnConns: h.OwnConnections,
		})
	}
	for _, c := range a.hub.Clients(time.Now()) {
		s.Clients = append(s.Clients, admin.Client(c))
	}
	budgets, err := a.budgets.Statuses(r.Context())
	if err != nil {
		slog.DebugContext(r.Context(), "the budgets cannot be read", "error", err)
	}
	for _, b := range budgets {
		s.Budgets = append(s.Budgets, admin.Budget{
			Tenant: b.Tenant, Per: b.Per, Used: newBudgetAmount(b.Used), Reserved: newBudgetAmount(b.Held), Limit: newBudgetAmount(b.Limit),
			Share: b.Share(), Text: b.String(), Renews: b.Renews,
		})
	}
	s.Today = newToday(a.metrics.Today())
	s.Today.NotMasking = a.metrics.NotMasking()
	s.Store = admin.Store{Driver: cfg.State.Driver, MaxBytes: int64(cfg.State.MaxBytes), TTL: int64(cfg.State.TTL.D() / time.Second)}
	if cfg.State.Driver == "sqlite" {
		s.Store.Path = storePath(cfg)
	}
	stat, err := a.storage.Store.Stat(r.Context())
	if err != nil {
		s.Store.Error = fault.PublicOf(err)
	}
	if status := a.storage.redisStatus; status != nil && s.Store.Error == "" {
		s.Store.Error = status().Problem
	}
	s.Store.Bytes, s.Store.Items = stat.Bytes+stat.Pinned, stat.Items
	return s
}

func newBudgetAmount(a budget.Amount) admin.BudgetAmount {
	return admin.BudgetAmount{Requests: a.Requests, Tokens: a.Tokens, Money: money(a.Money)}
}

func newToday(d meter.Day) admin.Today {
	return admin.Today{
		Since: d.Since, TextsCut: d.TextsCut, CharsCut: d.CharsCut, TokensCut: int64(history.Tokens(int(d.CharsCut))),
		ModelRequests: d.ModelRequests, MaskedRequests: d.MaskedRequests, MaskedTokens: d.MaskedTokens,
		ReadBacks: d.ReadBacks, CharsReadBack: d.CharsReadBack, TokensReadBack: int64(history.Tokens(int(d.CharsReadBack))),
		SentWhole: d.SentWhole, Unrecoverable: d.Unrecoverable,
		Replies: d.Replies, Billed: d.Billed, Unmasked: d.Unmasked, Saved: d.Unmasked - d.Billed, Recovery: d.Recovery,
		Parts: admin.SavedParts[int64]{Hub: d.AtHub, Shortened: d.Shortened, Masked: d.Masked, Steps: d.Steps, Cache: d.Cache},
		Money: admin.TodayMoney{Billed: money(d.Spent), Unmasked: money(d.Spent + d.MoneySaved), Saved: money(d.MoneySaved), Recovery: money(d.MoneyRecovery), Unpriced: d.Unpriced},
	}
}

func money(millionths int64) json.Number { return json.Number(meter.Money(millionths).String()) }

const (
	saveDayEvery = time.Minute

	// The record of the day's count. No caller has this tenant.
	dayTenant = "\x00gateway"
	dayRecord = "today"
)

// keepDay saves the day's count in the store: at once, to find what was counted before this process
// started, then every minute, and when the gateway stops. Processes that share the store add up.
func (a *App) keepDay(ctx context.Context) {
	if a.cfg.State.Driver == "memory" || !a.storage.Recall.Enabled() {
		return // the count ends with the process
	}
	save := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := saveDay(ctx, a.storage.Recall, a.metrics); err != nil {
			slog.DebugContext(ctx, "what was cut today could not be stored; it is tried again", "error", err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	a.onRelease(func() error { close(stop); <-stopped; return nil })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(saveDayEvery)
		defer tick.Stop()
		for {
			save()
			select {
			case <-tick.C:
			case <-stop:
				save()
				return
			}
		}
	}()
}

func saveDay(ctx context.Context, r *recall.Recall, m *meter.Meter) error {
	return m.SaveToday(func(change func(*meter.StoredDay) *meter.StoredDay) error {
		return r.UpdateRecord(ctx, dayTenant, dayRecord, func(raw []byte) ([]byte, error) {
			var stored *meter.StoredDay
			if raw != nil && json.Unmarshal(raw, &stored) != nil {
				stored = nil
			}
			next := change(stored)
			if next == nil {
				return nil, nil
			}
			return json.Marshal(next)
		})
	})
}
