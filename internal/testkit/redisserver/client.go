package redisserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// commandLimit is how long a node has for a command.
const commandLimit = 5 * time.Second

// replyError is an error that a node replied with.
type replyError string

// Error is the node's text.
func (e replyError) Error() string { return string(e) }

func isReply(err error) bool {
	var reply replyError
	return errors.As(err, &reply)
}

// Do sends one command on a connection of its own. A reply is a string, an int64, nil or a []any of those.
func (n *Node) Do(args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	conn, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(commandLimit)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	o := n.server.options
	if o.Password != "" && (!n.isSentinel || o.SentinelAuth) {
		auth := []string{"AUTH", o.Password}
		if o.User != "" {
			auth = []string{"AUTH", o.User, o.Password}
		}
		if _, err := exchange(conn, r, auth); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	reply, err := exchange(conn, r, args)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", n.Name, strings.Join(args[:min(2, len(args))], " "), err)
	}
	return reply, nil
}

func (n *Node) connect(ctx context.Context) (net.Conn, error) {
	if certs := n.server.certs; certs != nil {
		return (&tls.Dialer{Config: &tls.Config{RootCAs: certs.pool, MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", n.Address())
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", n.Address())
}

func exchange(w io.Writer, r *bufio.Reader, args []string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return nil, err
	}
	return readReply(r)
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line")
	}
	switch line[0] {
	case '+':
		return line[1:], nil
	case '-':
		return nil, replyError(line[1:])
	}
	size, err := strconv.ParseInt(line[1:], 10, 64)
	if err != nil {
		return nil, err
	}
	switch {
	case line[0] == ':':
		return size, nil
	case size < 0:
		return nil, nil
	case line[0] == '$':
		data := make([]byte, size+2)
		_, err := io.ReadFull(r, data)
		return string(data[:size]), err
	case line[0] == '*':
		list := make([]any, 0, size)
		for range size {
			one, err := readReply(r)
			if err != nil && !isReply(err) {
				return nil, err
			}
			list = append(list, one)
		}
		return list, nil
	}
	return nil, fmt.Errorf("not a reply: %q", line)
}

// Info reads a section of INFO, or CLUSTER INFO, into its fields.
func (n *Node) Info(section string) (map[string]string, error) {
	args := []string{"INFO", section}
	if section == "cluster" {
		args = []string{"CLUSTER", "INFO"}
	}
	reply, err := n.Do(args...)
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}
