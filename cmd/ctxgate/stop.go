package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/daemon"
)

// stopTimeout is how long a gateway may take to end: its calls in flight have http.drain_grace, its servers
// shutdown_grace.
const stopTimeout = 5 * time.Minute

func stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the gateway of a config file",
		Long: `Stop the gateway of the config file, whether a client started it in the background or
'ctxgate serve' runs it. Calls in flight may finish within http.drain_grace; the command
waits for the end.

Clients that are still connected start another gateway when they need it.`,
		Example: "  ctxgate stop",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := gatewayOf(*path)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), stopTimeout)
		defer cancel()
		g, err := daemon.Running(ctx, program.Endpoint, version())
		if errors.Is(err, daemon.ErrNotRunning) {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "no gateway runs for %s\n", program.Endpoint.Config)
			return err
		}
		if err != nil {
			return err
		}
		if err := requestStop(ctx, program.Endpoint); err != nil {
			return err
		}
		if err := daemon.AwaitExit(ctx, g.PID); err != nil {
			return fmt.Errorf("the gateway with pid %d has not ended yet: %w", g.PID, err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "stopped the gateway of %s (pid %d, ctxgate %s, up %s)\n", g.Config, g.PID, g.Version, time.Since(g.Started).Round(time.Second))
		return err
	}
	return cmd
}

func requestStop(ctx context.Context, e daemon.Endpoint) error {
	client := daemon.HTTPClient(e, version())
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/api/v1/stop", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("stopping the gateway: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("stopping the gateway: it answers %s", res.Status)
	}
	return nil
}
