package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/toolcalls"
)

// openRedis starts Redis servers that write every change to disk before they answer, with a gateway that waits for all of them.
func openRedis(name string, mode redisserver.Mode) (*engine, error) {
	server, err := redisserver.New(mode, redisserver.Options{})
	if err != nil {
		return nil, err
	}
	g := &engine{name: name, settings: fmt.Sprintf("driver = \"redis\"\nurl = %q\n", server.URL()), close: server.Close}
	for _, node := range slices.Concat(server.Nodes, server.Sentinels) {
		g.pids = append(g.pids, node.PID())
	}
	primary, err := server.Primary()
	if err != nil {
		return g, err
	}
	g.counters = func() (engineWork, error) { return redisWork(primary) }
	g.bare = func(ctx context.Context, kind callKind, _ engineCost, e engineEffort) (time.Duration, error) {
		return g.benchmarkRedis(ctx, primary, kind, e.bareCommands)
	}
	return g, nil
}

// redisWork is what a server has done, and what it holds.
func redisWork(node *redisserver.Node) (w engineWork, err error) {
	for section, fields := range map[string]map[string]*int64{
		"stats":  {"total_commands_processed": &w.commands, "total_net_input_bytes": &w.bytes},
		"memory": {"used_memory": &w.memory},
	} {
		info, err := node.Info(section)
		if err != nil {
			return w, err
		}
		for name, to := range fields {
			if *to, err = strconv.ParseInt(info[name], 10, 64); err != nil {
				return w, fmt.Errorf("INFO: %s: %w", name, err)
			}
		}
	}
	return w, nil
}

// recordedCommand is a command that the gateway sends, and how often.
type recordedCommand struct {
	args  []string
	count int
}

const (
	recordedCalls = 64
	bareClients   = 16
)

// benchmarkRedis is the processor time of the servers for the commands of a call, when redis-benchmark sends them: it
// records what the gateway sends in some calls, and has each of these commands repeated.
func (g *engine) benchmarkRedis(ctx context.Context, node *redisserver.Node, kind callKind, repeats int) (time.Duration, error) {
	commands, err := g.recordCommands(ctx, node, kind.Kind)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, c := range commands {
		args := []string{"-p", strconv.Itoa(node.Port), "-n", strconv.Itoa(repeats), "-c", strconv.Itoa(bareClients), "-r", "1000000000", "-q"}
		before := g.ownTime()
		out, err := exec.CommandContext(ctx, "redis-benchmark", append(args, c.printable()...)...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "rror") {
			return 0, errors.Join(fmt.Errorf("redis-benchmark %s: %s", c.args[0], out[:min(len(out), 300)]), err)
		}
		total += (g.ownTime() - before) * time.Duration(c.count) / time.Duration(repeats)
	}
	return total / recordedCalls, nil
}

// recordCommands is what the gateway sends in recordedCalls calls, one command of each kind.
func (g *engine) recordCommands(ctx context.Context, node *redisserver.Node, kind toolcalls.Kind) ([]*recordedCommand, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", node.Address())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(conn, 1<<20)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "+OK") {
		return nil, errors.Join(fmt.Errorf("MONITOR: %q", line), err)
	}
	if _, err := toolcalls.Run(ctx, g.callers, recordedCalls, kind); err != nil {
		return nil, err
	}
	// What is sent a moment later belongs to the calls too.
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		return nil, err
	}
	found := map[string]*recordedCommand{}
	var order []*recordedCommand
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return order, nil // the deadline
		}
		args := monitoredArgs(line)
		if len(args) == 0 || slices.Contains([]string{"INFO", "ROLE", "CONFIG", "PING", "CLIENT", "HELLO", "AUTH", "WAIT", "SENTINEL", "REPLCONF", "PUBLISH", "SCRIPT"}, strings.ToUpper(args[0])) {
			continue
		}
		name := strings.ToUpper(args[0]) + strconv.Itoa(len(args))
		if strings.HasPrefix(name, "EVAL") {
			name += args[1]
		}
		if found[name] == nil {
			found[name] = &recordedCommand{args: args}
			order = append(order, found[name])
		}
		found[name].count++
	}
}

// monitoredArgs are the arguments in a line of MONITOR, such as
//
//	+1700000000.123456 [0 127.0.0.1:5000] "HSET" "k" "\x00"
//
// and none for a command that a script calls.
func monitoredArgs(line string) []string {
	head, rest, ok := strings.Cut(line, "] ")
	if !ok || strings.HasSuffix(head, " lua") {
		return nil
	}
	var args []string
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return nil
		}
		args, rest = append(args, arg), rest[len(quoted):]
	}
	return args
}

// printable are arguments of the same lengths that can be in a command line. Long keys are different each time, as far as the
// command's kind of key allows.
func (c recordedCommand) printable() []string {
	const random = "__rand_int__"
	var out []string
	for i, arg := range c.args {
		isText := strings.IndexFunc(arg, func(r rune) bool { return r < ' ' || r > '~' }) < 0
		switch {
		case i > 1 && len(arg) >= 24 && len(arg) <= 256 && strings.HasPrefix(strings.ToUpper(c.args[0]), "EVAL"):
			if !isText {
				arg = strings.Repeat("x", len(arg))
			}
			arg = arg[:len(arg)-len(random)] + random
		case !isText:
			arg = strings.Repeat("x", len(arg))
		}
		out = append(out, arg)
	}
	return out
}
