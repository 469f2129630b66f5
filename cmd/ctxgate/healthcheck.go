package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

const healthTimeout = 3 * time.Second

func healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the running gateway whether it is alive",
		Long: `Ask the main listener of the gateway that runs with this config file for /healthz, or for
/readyz with --ready: a gateway that drains is alive and not ready. It is for containers
without a shell and without curl.`,
		Example: "  ctxgate healthcheck --config /etc/ctxgate/ctxgate.toml",
		Args:    cobra.NoArgs,
	}
	path := configFlag(cmd)
	ready := cmd.Flags().Bool("ready", false, "ask whether it accepts calls, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := loadConfig(*path, false)
		if err != nil {
			return err
		}
		if loaded.Front.Listen == "" {
			return errors.New("the gateway has no main listener: listen is empty")
		}
		url := "http://" + reachableAddress(loaded.Front.Listen)
		if loaded.Auth.TLS.IsEnabled() {
			url = "https://" + reachableAddress(loaded.Front.Listen)
		}
		if *ready {
			return checkHealth(cmd.Context(), url+"/readyz")
		}
		return checkHealth(cmd.Context(), url+"/healthz")
	}
	return cmd
}

// checkHealth asks once. The certificate is not checked: its name is not that of a loopback address, and nothing secret is
// sent.
func checkHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking the gateway: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking the gateway: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the gateway answers HTTP %d: %s", resp.StatusCode, body)
	}
	return nil
}
