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
	"path/filepath"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// benchServed sends every sample to the pruner of a binary over HTTP and prints the quality of the results.
func benchServed(ctx context.Context, binary string) (err error) {
	samples, err := readCorpus(".", tuningSamples)
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
		if err := samples[i].pruneSample(ctx, url, tallies[samples[i].Type]); err != nil {
			return fmt.Errorf("%s: %w", samples[i].ID, err)
		}
	}
	fmt.Printf("\nprune_text over HTTP: max_prune_ratio %.2f, min_keep_lines %d; bytes saved are net of the markers\n", budget.MaxPruneRatio, budget.MinKeepLines)
	fmt.Printf("| type | n | unchanged | lines left out | recall | all gold | bytes saved | p50 ms | p95 ms |\n|---|---|---|---|---|---|---|---|---|\n")
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

// pruneSample has a sample pruned and adds the result to the totals.
func (s *sample) pruneSample(ctx context.Context, url string, t *tally) error {
	call := toolCall{Version: "2.0", ID: 1, Method: "tools/call"}
	call.Params.Name = "prune_text"
	call.Params.Arguments = pruneArguments{s.Text, s.Goal, s.Type, pruneOptions{budget.MaxPruneRatio, budget.MinKeepLines, 10_000, false, true}}
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
	kept := make([]bool, s.lineCount())
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
		return d, fmt.Errorf("unexpected reply of the pruner: %.200s", answer)
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

// startPruner runs `ctxgate pruner` with its own store until stop.
func startPruner(ctx context.Context, binary string) (url string, stop func() error, err error) {
	home, err := os.MkdirTemp("", "ctxgate-bench-")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(home))
		}
	}()
	address, err := process.FreeAddress()
	if err != nil {
		return "", nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(ctx, binary, "pruner")
	cmd.Env = gateway.Environment(home, "MCP_PRUNER_PORT="+port)
	p, err := process.Start(cmd, filepath.Join(home, "pruner.log"))
	if err != nil {
		return "", nil, err
	}
	if err := p.WaitStatus("http://"+address+"/health", http.StatusOK); err != nil {
		p.Kill()
		return "", nil, err
	}
	stop = func() error { return errors.Join(p.Terminate(10*time.Second), os.RemoveAll(home)) }
	return "http://" + address + "/rpc", stop, nil
}
