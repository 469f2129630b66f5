package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// served sends every sample to the pruner of a binary, as an agent would, and prints what came back.
func served(ctx context.Context, binary string) (err error) {
	samples, err := corpus(".")
	if errors.Is(err, errNoCorpus) {
		fmt.Println(err)
		return nil
	}
	if err != nil {
		return err
	}
	url, stop, err := startPruner(ctx, binary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	types := []string{"code", "logs", "docs"}
	tallies := map[string]*tally{}
	for _, name := range types {
		tallies[name] = &tally{}
	}
	for i := range samples {
		if err := samples[i].send(ctx, url, tallies[samples[i].Type]); err != nil {
			return fmt.Errorf("%s: %w", samples[i].ID, err)
		}
	}
	fmt.Printf("\nprune_text over HTTP: max_prune_ratio %.2f, min_keep_lines %d; bytes saved are net of the markers\n", budget.MaxRatio, budget.MinKeep)
	fmt.Printf("| type | n | came back whole | lines left out | recall | all gold | bytes saved | p50 ms | p95 ms |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range types {
		t := tallies[name]
		if t.n == 0 {
			continue
		}
		fmt.Printf("| %s | %d | %d | %.3f | %.3f | %.3f | %.3f | %.1f | %.1f |\n",
			name, t.n, t.whole, t.mean(t.cut), t.mean(t.recall), t.mean(t.allGold), t.mean(t.saved), t.quantile(.5), t.quantile(.95))
	}
	return nil
}

// pruneOptions are what the samples are sent with.
type pruneOptions struct {
	MaxRatio  float64 `json:"max_prune_ratio"`
	MinKeep   int     `json:"min_keep_lines"`
	TimeoutMS int     `json:"timeout_ms"`
	Annotate  bool    `json:"annotate_lines"`
	Markers   bool    `json:"include_markers"`
}

type pruneArguments struct {
	Text    string       `json:"text"`
	Goal    string       `json:"goal_hint"`
	Type    string       `json:"source_type"`
	Options pruneOptions `json:"options"`
}

type toolCall struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  struct {
		Name      string         `json:"name"`
		Arguments pruneArguments `json:"arguments"`
	} `json:"params"`
}

type toolAnswer struct {
	Result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

type prunedDocument struct {
	Text        string `json:"pruned_text"`
	Annotations []struct {
		First int `json:"original_start_line"`
		Last  int `json:"original_end_line"`
	} `json:"annotations"`
	Warnings []string `json:"warnings"`
}

// send has one sample pruned and adds what came of it.
func (s *sample) send(ctx context.Context, url string, t *tally) error {
	call := toolCall{Version: "2.0", ID: 1, Method: "tools/call"}
	call.Params.Name = "prune_text"
	call.Params.Arguments = pruneArguments{s.Text, s.Goal, s.Type, pruneOptions{budget.MaxRatio, budget.MinKeep, 10_000, false, true}}
	body, err := json.Marshal(call)
	if err != nil {
		return err
	}
	began := time.Now()
	answer, err := post(ctx, url, body)
	if err != nil {
		return err
	}
	t.ms = append(t.ms, ms(time.Since(began)))
	d, err := readDocument(answer)
	if err != nil {
		return err
	}
	kept := make([]bool, s.lines())
	for i := range kept {
		kept[i] = true
	}
	cut := 0
	for _, a := range d.Annotations {
		cut += a.Last - a.First + 1
		clear(kept[a.First-1 : a.Last])
	}
	if cut == 0 {
		t.whole++
	}
	t.add(s.recall(kept), float64(cut)/float64(len(kept)), 1-float64(len(d.Text))/float64(len(s.Text)))
	return nil
}

func readDocument(answer []byte) (d prunedDocument, err error) {
	var a toolAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return d, err
	}
	if len(a.Result.Content) != 1 {
		return d, fmt.Errorf("the pruner answered %.200s", answer)
	}
	return d, json.Unmarshal([]byte(a.Result.Content[0].Text), &d)
}

func post(ctx context.Context, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d: %.200s", resp.StatusCode, answer)
	}
	return answer, err
}

// startPruner runs `ctxgate pruner` with a store of its own, on a port nobody uses, until stop.
func startPruner(ctx context.Context, binary string) (url string, stop func() error, err error) {
	home, err := os.MkdirTemp("", "ctxgate-bench-")
	if err != nil {
		return "", nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(home))
	}
	ctx, cancel := context.WithCancel(ctx)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, "pruner")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "MCP_PRUNER_PORT=" + strconv.Itoa(port)}
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		return "", nil, errors.Join(err, os.RemoveAll(home))
	}
	stop = func() error {
		cancel()
		_ = cmd.Wait() // it was told to end
		return os.RemoveAll(home)
	}
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		if healthy(ctx, url+"/health") {
			return url + "/rpc", stop, nil
		}
	}
	err = stop() // only then is what it said all there
	return "", nil, errors.Join(fmt.Errorf("%s pruner does not become healthy:\n%s", binary, said.Bytes()), err)
}

func healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
