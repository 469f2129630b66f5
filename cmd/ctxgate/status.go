package main

import (
	"bytes"
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
	maxStatusBytes = 256 << 20 // all definitions of all servers' tools are among what is asked for
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
	return s.askGateway(ctx, http.MethodGet, statusPath, nil)
}

// askGateway makes a request of the operator's API.
func (s statusSource) askGateway(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	reply, err := fetchReply(s.socket, req)
	if errors.Is(err, daemon.ErrNotRunning) {
		return s.askListener(ctx, method, path, body)
	}
	return reply, err
}

// askListener makes a request at the admin listener: two gateways may run with one config file, and only one of them
// has the socket; or it is in a container.
func (s statusSource) askListener(ctx context.Context, method, path string, body []byte) ([]byte, error) {
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
	req, err := http.NewRequestWithContext(ctx, method, "http://"+reachableAddress(loaded.Admin.Listen)+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	reply, err := fetchReply(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, req)
	if errors.Is(err, errNotOurs) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, s.errNotRunning() // the address is free, or another gateway or program has it
	}
	return reply, err
}

// errNotOurs says that something else than the gateway of the configuration answered.
var errNotOurs = errors.New("another program, or the gateway of another config file, answered")

func fetchReply(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStatusBytes))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the gateway's answer: %w", err)
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusNotFound:
		return nil, errNotOurs
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the gateway answers HTTP %d%s", resp.StatusCode, errorText(body))
	}
	return body, nil
}

// errorText is the message of an error that the gateway answered, after a colon.
func errorText(body []byte) string {
	var reply struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &reply) != nil || reply.Error.Message == "" {
		return ""
	}
	return ": " + reply.Error.Message
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
