package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

// barGuarded is the share of the speed without any of it that calls must keep with a token, 100 access rules, limits and the
// audit log.
const barGuarded = .95

// compareGuarded measures the processor time of small calls of two gateways, one with all of that on and one with all of it off,
// in interleaved rounds; the median of the rounds' ratios counts.
func compareGuarded(ctx context.Context, e engineEffort) (err error) {
	h, err := newProxySet()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	upstream, stop, err := serveTools(ctx)
	if err != nil {
		return err
	}
	defer stop()
	binary, err := gateway.Build(h.dir)
	if err != nil {
		return err
	}
	ways := []*engine{
		{name: "all off", settings: "driver = \"memory\"\n"},
		{name: "all on", token: "a-token-of-the-benchmark-0123456789", top: "rate_limit_per_minute = 60000000\n", settings: guardedSettings(filepath.Join(h.dir, "audit.log"))},
	}
	defer func() {
		for _, g := range ways {
			g.closeEngine()
		}
	}()
	for _, g := range ways {
		if err := g.startGateway(ctx, h, binary, upstream, e.callers); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	nothing := callKinds[0]
	var off, on []time.Duration
	for round := range e.rounds + 1 { // the first warms up
		var took [2]time.Duration
		for i, g := range ways {
			cost, err := g.measureCalls(ctx, nothing, e.calls)
			if err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			took[i] = cost.gateway / time.Duration(e.calls)
		}
		if round > 0 {
			off, on = append(off, took[0]), append(on, took[1])
		}
	}
	perCall := func(all []time.Duration) float64 {
		return median(all, func(_ int, d time.Duration) float64 { return float64(d) / 1000 })
	}
	ratio := median(on, func(i int, d time.Duration) float64 { return float64(off[i]) / math.Max(1, float64(d)) })
	fmt.Printf("processor time per small call, µs (%d callers, %d rounds of %d calls, interleaved)\n", e.callers, e.rounds, e.calls)
	fmt.Printf("  no identity, rules, limits or audit log      %7.1f\n  a token, 100 rules, 3 limits, the audit log  %7.1f\n", perCall(off), perCall(on))
	fmt.Printf("with all of it a call has %.3f of the speed (bar %.2f)\n", ratio, barGuarded)
	if ratio < barGuarded {
		return errMissed
	}
	return nil
}

// guardedSettings are a token, 100 rules by tenant, role, server, tool and arguments, limits, and the audit log.
func guardedSettings(audit string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "driver = \"memory\"\n[audit]\npath = %q\n[[tokens]]\nname = \"bench\"\ntoken = \"env:BENCH_TOKEN\"\ntenant = \"acme\"\nroles = [\"dev\"]\n", audit)
	b.WriteString("[[limits]]\nname = \"tools\"\nserver = \"tools\"\nrate = 1000000\nevery = \"1s\"\nburst = 1000000\n[[limits]]\nname = \"flight\"\nconcurrency = 1000\n[access]\ndefault = \"allow\"\n")
	for i := range 20 {
		for _, when := range []string{
			`caller.tenant == "tenant%d" && tool.startsWith("delete_")`,
			`server == "server%d" && !("admin" in caller.roles)`,
			`tool == "tool_%d" && caller.claims.?level.orValue(0) < 3`,
			`tool.startsWith("admin_") && arguments.level == %d`,
			`server == "tools" && tool == "write_%d" && arguments.path.startsWith("/etc/")`,
		} {
			if i == 0 { // one of those that read arguments is for the tool that is called
				when = strings.Replace(when, `tool == "write_%d" && arguments.path`, `tool == "read" && arguments.nonce`, 1)
				when = strings.ReplaceAll(when, `startsWith("/etc/")`, `startsWith("%d")`)
			}
			fmt.Fprintf(&b, "[[access.rules]]\neffect = \"deny\"\nwhen = '"+when+"'\n", i)
		}
	}
	return b.String()
}
