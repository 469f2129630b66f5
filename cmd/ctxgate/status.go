package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/daemon"
)

const (
	statusTimeout  = 10 * time.Second
	watchInterval  = 2 * time.Second
	maxStatusBytes = 16 << 20
	statusPath     = "/api/v1/status"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running gateway does",
		Long: `Show the running gateway: its servers with their state, tools, protocol revision, restarts
and last error; the clients that are connected; what was cut, read back and saved today,
in tokens and money; the size of the store; the open addresses.

Exit code 3 means that no gateway runs for this config file.`,
		Example: `  ctxgate status
  ctxgate status --watch                # again every two seconds, until Ctrl-C
  ctxgate status --json | jq '.servers[] | select(.state != "up")'`,
	}
	path := configFlag(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again every two seconds")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		source, err := findGateway(*path)
		if err != nil {
			return err
		}
		if *watch {
			return source.watchStatus(cmd.Context(), cmd.OutOrStdout(), *asJSON)
		}
		raw, err := source.readStatus(cmd.Context())
		if err != nil {
			return err
		}
		return printStatus(cmd.OutOrStdout(), raw, *asJSON, newStyle(cmd.OutOrStdout()))
	}
	return cmd
}

// printStatus prints a status for people, or as the gateway sent it.
func printStatus(w io.Writer, raw []byte, asJSON bool, style style) error {
	if asJSON {
		_, err := w.Write(raw)
		return err
	}
	var s admin.Status
	if err := json.Unmarshal(raw, &s); err != nil || s.Version == "" {
		return fmt.Errorf("the gateway's status cannot be read: its version may be another than this program's, %s", version())
	}
	_, err := io.WriteString(w, statusText(s, time.Now(), style))
	return err
}

// statusSource is where the status of a gateway is read: at its socket, or at its admin listener where it has no
// socket. The config file is not read for the first, so that a file with a mistake does not hide the gateway.
type statusSource struct {
	file   string // the path of the config file
	socket *http.Client
}

func findGateway(named string) (statusSource, error) {
	program, err := gatewayOf(named)
	if err != nil {
		return statusSource{}, err
	}
	return statusSource{program.Endpoint.Config, daemon.HTTPClient(program.Endpoint, version())}, nil
}

// errNotRunning says what to do when no gateway runs.
func (s statusSource) errNotRunning() error {
	return &exitError{exitNotRunning, fmt.Errorf("no gateway runs for %s: a client that has ctxgate as its MCP server starts one, and so does 'ctxgate serve'", s.file)}
}

// readStatus asks the gateway for its status.
func (s statusSource) readStatus(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway"+statusPath, nil)
	if err != nil {
		return nil, err
	}
	body, err := fetchStatus(s.socket, req)
	if errors.Is(err, daemon.ErrNotRunning) {
		return s.readFromListener(ctx)
	}
	return body, err
}

// readFromListener reads the status at the admin listener: two gateways may run with one config file, and only one of
// them has the socket; or it is in a container.
func (s statusSource) readFromListener(ctx context.Context) ([]byte, error) {
	loaded, err := loadConfig(s.file, false)
	if err != nil {
		return nil, err
	}
	token, err := app.AdminToken(loaded.Config)
	if loaded.Admin.Listen == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, s.errNotRunning()
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachableAddress(loaded.Admin.Listen)+statusPath, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	body, err := fetchStatus(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, req)
	if errors.Is(err, errNotOurs) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, s.errNotRunning() // the address is free, or another gateway or program has it
	}
	return body, err
}

// errNotOurs says that something else than the gateway of the configuration answered.
var errNotOurs = errors.New("another program, or the gateway of another config file, answered")

func fetchStatus(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the gateway for its status: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStatusBytes))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the gateway's status: %w", err)
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusNotFound:
		return nil, errNotOurs
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the gateway answers HTTP %d instead of its status", resp.StatusCode)
	}
	return body, nil
}

// reachableAddress is where a listener on all addresses is reached from this machine.
func reachableAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// watchStatus shows the status again and again. On a terminal it redraws the screen; elsewhere it prints one
// status after the other. A gateway that stops or is not started yet is waited for.
func (s statusSource) watchStatus(ctx context.Context, out io.Writer, asJSON bool) error {
	style := newStyle(out)
	redraws := style.terminal != nil && !asJSON
	if redraws {
		_, _ = io.WriteString(out, "\x1b[?1049h") // the alternate screen
		defer func() { _, _ = io.WriteString(out, "\x1b[?1049l") }()
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		var text lineBuffer
		raw, err := s.readStatus(ctx)
		if err == nil {
			err = printStatus(&text, raw, asJSON, style)
		}
		if ctx.Err() != nil {
			return nil
		}
		var exit *exitError
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		if err != nil {
			for _, line := range wrapWords(err.Error(), terminalWidth, 5) {
				fmt.Fprintln(&text, line)
			}
		}
		if redraws {
			_, height, sizeErr := term.GetSize(int(style.terminal.Fd()))
			if sizeErr != nil {
				height = 0
			}
			_, err = io.WriteString(out, text.asScreen(height))
		} else {
			_, err = out.Write(append(text.Bytes(), '\n'))
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// terminalOf is the file of an output that is a terminal; nil for any other.
func terminalOf(out io.Writer) *os.File {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}
