package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/prunerd"
)

// pruneFlags are the flags of the command: how to prune, and what to print.
type pruneFlags struct {
	goal, kind                      string
	budget                          prune.Budget
	json, stats, number, explain    bool
	noMarkers, noStore, bench, kept bool
}

func pruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune [FILE]",
		Short: "Print only the lines of a text that matter for a goal",
		Long: `Read a text from FILE or stdin and print the lines that matter for a goal. Left-out lines
are replaced by markers, and the original is stored: 'ctxgate recover' prints it, given the
prune_id in a marker. Without a goal the structure of the text decides: headings,
definitions, errors and what led to them.

The remaining lines are unchanged and in their order. --ratio and --min-keep limit how many
lines are left out; imports, signatures, headings and errors are never left out. If nothing
is left out, the output is the input, byte for byte. The whole text is also printed if the
original cannot be stored or if the input is binary; a warning on stderr says so.

Everything happens on this machine. With --no-store the original is not stored, no config
file is read, and left-out lines cannot be read back.

--bench answers the requests of a benchmark, one JSON object per line, with the score of
every line of a text or, with --kept, with the remaining lines.`,
		Example: `  go test ./... 2>&1 | ctxgate prune --type logs --goal "why does TestX fail"
  ctxgate prune --goal "where is the retry limit set" --ratio 0.85 --number server.go`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("prune takes one file, or stdin")
			}
			return nil
		},
	}
	path := configFlag(cmd)
	var f pruneFlags
	flags := cmd.Flags()
	flags.StringVar(&f.goal, "goal", "", "what you want to find in the text, in words")
	flags.StringVar(&f.kind, "type", "auto", "the kind of text: code, logs or docs; auto decides by the name of FILE, else by the text")
	flags.Float64Var(&f.budget.MaxPruneRatio, "ratio", 0.7, "the largest share of lines to leave out: 0 to 1")
	flags.IntVar(&f.budget.MinKeepLines, "min-keep", 20, "print at least this many lines")
	flags.BoolVarP(&f.number, "number", "n", false, "print line numbers")
	flags.BoolVar(&f.noMarkers, "no-markers", false, "print no markers for left-out lines")
	flags.BoolVar(&f.noStore, "no-store", false, "do not store the original; left-out lines cannot be read back")
	flags.BoolVar(&f.json, "json", false, "print the answer of prune_text: text, annotations and statistics in one JSON object")
	flags.BoolVar(&f.stats, "stats", false, "print on stderr how much was left out")
	flags.BoolVar(&f.explain, "explain", false, "instead of the text, print for every line whether it stays, and its score")
	flags.BoolVar(&f.bench, "bench", false, "answer a benchmark's requests, one JSON object per line")
	flags.BoolVar(&f.kept, "kept", false, "with --bench: print the remaining lines, not scores")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{"auto", "code", "logs", "docs"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.checkFlags(args); err != nil {
			return &exitError{exitUsage, err}
		}
		err := f.runFilter(cmd, *path, args)
		if errors.Is(err, syscall.EPIPE) {
			return nil // the reader of the output has closed it
		}
		return err
	}
	return cmd
}

func (f *pruneFlags) checkFlags(args []string) error {
	_, known := prune.ParseKind(f.kind)
	switch {
	case !known && f.kind != "auto":
		return fmt.Errorf("--type: %q is not one of auto, code, logs, docs", f.kind)
	case !(f.budget.MaxPruneRatio >= 0 && f.budget.MaxPruneRatio <= 1): // also false for NaN
		return errors.New("--ratio: must be a number from 0 to 1")
	case f.budget.MinKeepLines < 0:
		return errors.New("--min-keep: must not be negative")
	case f.bench && len(args) > 0:
		return errors.New("--bench reads requests from stdin and takes no file")
	case f.kept && !f.bench:
		return errors.New("--kept needs --bench")
	}
	return nil
}

// runFilter reads the configuration and the text, prunes it, stores the original and prints the result. If the
// configuration has a mistake, the whole text is printed first, because there may be no other copy of it;
// then the mistake is reported.
func (f *pruneFlags) runFilter(cmd *cobra.Command, path string, args []string) error {
	if f.bench {
		return await(cmd.Context(), func() error { return f.runBench(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()) })
	}
	var cfg config.Config
	var configErr error
	if !f.noStore {
		var loaded config.Loaded
		loaded, configErr = loadConfig(path, true)
		cfg = loaded.Config
	}
	file := "-"
	if len(args) > 0 {
		file = args[0]
	}
	text, err := readInput(cmd, file)
	if err != nil {
		return err
	}
	start := time.Now()
	p := pruning{text: text, id: "-", lines: strings.Count(text, "\n") + 1}
	switch {
	case configErr != nil:
		p.keepWhole(warnNotStored)
	case strings.IndexByte(text, 0) >= 0:
		p.keepWhole(warnBinary)
		printWarnings(cmd.ErrOrStderr(), []string{"the input is binary, so it is printed whole"})
	default:
		err = f.pruneAndStore(cmd, &p, kindOf(f.kind, file, text), cfg)
	}
	if err == nil {
		err = f.printResult(cmd, &p, time.Since(start))
	}
	return errors.Join(err, configErr)
}

// pruneAndStore prunes the text and stores the original. It returns an error only after a signal; on any
// other failure the text stays whole.
func (f *pruneFlags) pruneAndStore(cmd *cobra.Command, p *pruning, kind prune.Kind, cfg config.Config) error {
	ctx := cmd.Context()
	if f.budget.MinKeepLines > p.lines {
		p.keepWhole(warnConstraints) // as prune_text does, but without a message
	} else if err := p.prune(ctx, f, kind); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		p.keepWhole(warnInternal)
		printWarnings(cmd.ErrOrStderr(), []string{"the text is printed whole because of an internal error: " + err.Error()})
	}
	if f.noStore || f.explain || len(p.blocks) == 0 && !f.json {
		return nil
	}
	id, err := storeOriginal(ctx, cfg, p.text)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if id != "" {
		p.id = id
	}
	if err != nil {
		p.keepWhole(warnNotStored)
		printWarnings(cmd.ErrOrStderr(), []string{"the original cannot be stored, so the text is printed whole (--no-store prunes without storing): " + err.Error()})
	}
	return nil
}

// pruning is the result for one text.
type pruning struct {
	text, id string
	lines    int
	doc      *prune.ScoredText
	blocks   []prune.Block // the left-out lines
	fallback bool          // the text is printed whole
	warnings []string
}

// The reasons why a text is printed whole, as prune_text names them.
const (
	warnConstraints = "constraints_unmet"
	warnInternal    = "internal_error"
	warnNotStored   = "recovery_unavailable"
	warnBinary      = "binary_input" // prune_text has no such reason: JSON texts are not binary
)

func (p *pruning) keepWhole(why string) {
	p.doc, p.blocks, p.fallback, p.warnings = nil, nil, true, append(p.warnings, why)
}

func (p *pruning) prune(ctx context.Context, f *pruneFlags, kind prune.Kind) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v\n%s", v, debug.Stack())
		}
	}()
	if p.doc, err = prune.Score(ctx, p.text, f.goal, kind); err != nil {
		return err
	}
	p.blocks = p.doc.Cut(f.budget)
	return nil
}

// keptLines counts the remaining lines.
func (p *pruning) keptLines() int {
	n := p.lines
	for _, b := range p.blocks {
		n -= b.LineCount()
	}
	return n
}

// prunedText is the text with markers.
func (p *pruning) prunedText(f *pruneFlags) []byte {
	return p.doc.AppendPruned(nil, p.blocks, prune.Format{ID: p.id, LineNumbers: f.number, Markers: !f.noMarkers})
}

// printResult writes the text to stdout, and the statistics to stderr.
func (f *pruneFlags) printResult(cmd *cobra.Command, p *pruning, took time.Duration) error {
	size, err := f.writeText(cmd.OutOrStdout(), p, took)
	if f.stats && err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "ctxgate: kept %d of %d lines, %d → %d bytes, %d ms\n", p.keptLines(), p.lines, len(p.text), size, took.Milliseconds())
	}
	return err
}

func (f *pruneFlags) writeText(w io.Writer, p *pruning, took time.Duration) (size int, err error) {
	switch {
	case f.explain && p.doc != nil:
		return len(p.text), writeExplanation(w, p)
	case f.json:
		return writeJSON(w, p, f, took)
	case p.doc == nil || len(p.blocks) == 0 && !f.number:
		return io.WriteString(w, p.text)
	}
	out := p.prunedText(f)
	if f.number && strings.HasSuffix(p.text, "\n") { // a final line break does not start another line
		out = out[:len(out)-len(fmt.Sprintf("%d│ ", p.lines))]
	}
	return w.Write(out)
}

// storeTimeout is generous: no client waits, and a log of hundreds of megabytes takes its time.
const storeTimeout = unit.Duration(10 * time.Minute)

// storeOriginal stores a text for ctxgate recover, as an original of the pruner: callers that may use the
// pruner may read it. It may return an id together with an error.
func storeOriginal(ctx context.Context, cfg config.Config, text string) (id string, err error) {
	if cfg.State.Driver == "memory" {
		return "", errors.New(`state.driver = "memory" stores originals only until this process ends`)
	}
	cfg.Recall.KeepTimeout = max(cfg.Recall.KeepTimeout, storeTimeout)
	storage, err := app.OpenStorage(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	return storage.Recall.StoreText(ctx, auth.DefaultTenant, text, prunerd.Origin)
}

// kindOf is the requested kind, else the kind that the file name shows for certain (a .txt may be anything),
// else a guess from the text.
func kindOf(asked, file, text string) prune.Kind {
	if kind, ok := prune.ParseKind(asked); ok {
		return kind
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".log":
		return prune.Logs
	case ".md", ".mdx", ".markdown", ".rst", ".adoc", ".asciidoc", ".org", ".tex":
		return prune.Docs
	case ".go", ".py", ".pyi", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".rs", ".java", ".kt", ".scala", ".groovy", ".c", ".h", ".cc", ".cpp",
		".cxx", ".hh", ".hpp", ".m", ".mm", ".cs", ".fs", ".swift", ".rb", ".php", ".pl", ".lua", ".ex", ".exs", ".erl", ".hs", ".ml", ".clj", ".dart",
		".jl", ".r", ".sh", ".bash", ".zsh", ".ps1", ".sql", ".proto", ".vue", ".svelte", ".css", ".scss", ".zig", ".nim", ".tf":
		return prune.Code
	}
	return prune.DetectKind(text)
}

var errInterrupted = errors.New("interrupted")

// await runs work that reads stdin. Reading cannot be interrupted: after a signal await returns without it.
func await(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errInterrupted
	}
}

func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// writeJSON writes the answer of prune_text (P2), and returns the length of the text in it. Bytes that are
// not UTF-8 become the replacement character.
func writeJSON(w io.Writer, p *pruning, f *pruneFlags, took time.Duration) (size int, err error) {
	r := prunerd.Report{
		ID: p.id, Text: p.text, Pruned: []byte(strings.ToValidUTF8(p.text, "\ufffd")), Blocks: p.blocks, Backend: prunerd.Heuristic,
		Fallback: p.fallback, Warnings: p.warnings, Elapsed: took,
	}
	if p.doc != nil {
		r.Pruned = []byte(strings.ToValidUTF8(string(p.prunedText(f)), "\ufffd"))
	}
	_, err = w.Write(append(r.JSON(), '\n'))
	return len(r.Pruned), err
}

// writeExplanation writes for every line whether it stays ("must": whatever the budget), its score, the
// goal's words in it and, for code, the parts of the score.
func writeExplanation(w io.Writer, p *pruning) error {
	lines := strings.Split(p.text, "\n")
	gone := make([]bool, len(lines))
	for _, b := range p.blocks {
		for n := b.First; n <= b.Last; n++ {
			gone[n-1] = true
		}
	}
	for i, why := range p.doc.Explain() {
		stays := "stays"
		switch {
		case why.MustKeep:
			stays = "must "
		case gone[i]:
			stays = "  -  "
		}
		words := ""
		if len(why.GoalWords) > 0 {
			words = " [" + strings.Join(why.GoalWords, " ") + "]"
		}
		if _, err := fmt.Fprintf(w, "%4d %s %6.2f%s%s\n     | %s\n", i+1, stays, why.Score, formatParts(why.Parts), words, lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// formatParts lists the parts of a score, the largest first.
func formatParts(parts []prune.ScorePart) string {
	slices.SortStableFunc(parts, func(a, b prune.ScorePart) int {
		return int(1000 * (abs(b.Points) - abs(a.Points)))
	})
	if len(parts) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString(" =")
	for _, p := range parts {
		fmt.Fprintf(&out, " %+.2f %s", p.Points, p.Name)
	}
	return out.String()
}

func abs(x float32) float32 { return max(x, -x) }
